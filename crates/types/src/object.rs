//! Structs that are read from an object alone.

/// Implements `Deserialize` for a struct with `#[serde(remote = "Self")]`, so that it is read from an object alone:
/// what serde derives would also take a list, as the fields in their order. `Serialize` is implemented too, unless
/// it is said that the struct is only `read`.
#[macro_export]
macro_rules! object_only {
    ($kind:ident) => {
        impl ::serde::Serialize for $kind {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                // What serde derived.
                $kind::serialize(self, serializer)
            }
        }

        $crate::object_only!(read $kind);
    };
    (read $kind:ident) => {
        impl<'de> ::serde::Deserialize<'de> for $kind {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                struct Fields;

                impl<'de> ::serde::de::Visitor<'de> for Fields {
                    type Value = $kind;

                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("an object")
                    }

                    fn visit_map<A: ::serde::de::MapAccess<'de>>(
                        self,
                        fields: A,
                    ) -> ::std::result::Result<$kind, A::Error> {
                        // What serde derived.
                        $kind::deserialize(::serde::de::value::MapAccessDeserializer::new(fields))
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use std::collections::BTreeMap;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(remote = "Self", deny_unknown_fields, default)]
    struct Size {
        min: u32,
        max: Option<u32>,
    }

    object_only!(Size);

    #[test]
    fn an_object_is_read_and_a_list_is_not() {
        let read = serde_json::from_str::<BTreeMap<String, Option<Size>>>;
        let size = Size { min: 1, max: None };
        assert_eq!(read(r#"{"a":{"min":1}}"#).unwrap()["a"], Some(size));
        assert_eq!(read(r#"{"a":null,"b":{}}"#).unwrap()["b"], Some(Size::default()));
        for wrong in [r#"{"a":[]}"#, r#"{"a":[1,2]}"#, r#"{"a":{"least":1}}"#, r#"{"a":1}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(serde_json::to_string(&Size { min: 1, max: Some(2) }).unwrap(), r#"{"min":1,"max":2}"#);
    }
}
