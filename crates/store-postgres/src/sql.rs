//! Queries whose values are bound and read as Rust has them: text is escaped on its way in and back on its way out, and
//! every integer is a `bigint`. No other module binds a value by itself.

use crate::{
    error::failed,
    text::{escape, unescape},
};
use atoll_store::Result;
use futures_util::{
    future,
    stream::{self, BoxStream},
};
use sqlx::{
    Arguments, ColumnIndex, Decode, Encode, Executor, PgConnection, Postgres, Row, Type, ValueRef,
    error::BoxDynError,
    postgres::{PgArguments, PgQueryResult, PgRow},
};
use std::{fmt, marker::PhantomData};

/// A value that can be bound.
pub(crate) trait Bind {
    /// As the driver takes it.
    type Sql: for<'q> Encode<'q, Postgres> + Type<Postgres> + 'static;
    fn sql(self) -> Self::Sql;
}

macro_rules! bind {
    ($($from:ty => $to:ty: |$value:ident| $sql:expr),+ $(,)?) => {
        $(impl Bind for $from {
            type Sql = $to;
            fn sql(self) -> $to {
                let $value = self;
                $sql
            }
        })+
    };
}

bind! {
    bool => bool: |value| value,
    i64 => i64: |value| value,
    i32 => i64: |value| value.into(),
    u32 => i64: |value| value.into(),
    u16 => i64: |value| value.into(),
    String => String: |value| escape(&value).into_owned(),
    &str => String: |value| escape(value).into_owned(),
    Vec<u8> => Vec<u8>: |value| value,
    &[u8] => Vec<u8>: |value| value.to_vec(),
    Vec<i64> => Vec<i64>: |value| value,
    &[i64] => Vec<i64>: |value| value.to_vec(),
    Vec<Vec<u8>> => Vec<Vec<u8>>: |value| value,
    Vec<Option<Vec<u8>>> => Vec<Option<Vec<u8>>>: |value| value,
    Vec<Option<i64>> => Vec<Option<i64>>: |value| value,
    Vec<Option<bool>> => Vec<Option<bool>>: |value| value,
    Vec<String> => Vec<String>: |value| value.iter().map(|text| escape(text).into_owned()).collect(),
    Vec<Option<String>> => Vec<Option<String>>: |value| {
        value.iter().map(|text| text.as_deref().map(|text| escape(text).into_owned())).collect()
    },
}

impl<T: Bind + Clone> Bind for &T {
    type Sql = T::Sql;
    fn sql(self) -> T::Sql {
        self.clone().sql()
    }
}

impl<T: Bind> Bind for Option<T> {
    type Sql = Option<T::Sql>;
    fn sql(self) -> Option<T::Sql> {
        self.map(Bind::sql)
    }
}

/// A value of a column.
pub(crate) trait Column: Sized {
    fn read<I: ColumnIndex<PgRow> + fmt::Display + Copy>(row: &PgRow, column: I) -> sqlx::Result<Self>;
}

fn plain<'r, T, I>(row: &'r PgRow, column: I) -> sqlx::Result<T>
where
    T: Decode<'r, Postgres> + Type<Postgres>,
    I: ColumnIndex<PgRow>,
{
    row.try_get(column)
}

fn unreadable(column: impl fmt::Display, source: impl Into<BoxDynError>) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source: source.into() }
}

macro_rules! column {
    ($($to:ty: |$value:ident: $from:ty, $index:ident| $read:expr),+ $(,)?) => {
        $(impl Column for $to {
            fn read<I: ColumnIndex<PgRow> + fmt::Display + Copy>(row: &PgRow, $index: I) -> sqlx::Result<Self> {
                let $value: $from = plain(row, $index)?;
                $read
            }
        })+
    };
}

column! {
    bool: |value: bool, index| Ok(value),
    f64: |value: f64, index| Ok(value),
    i64: |value: i64, index| Ok(value),
    i32: |value: i64, index| value.try_into().map_err(|e: std::num::TryFromIntError| unreadable(index, e)),
    u32: |value: i64, index| value.try_into().map_err(|e: std::num::TryFromIntError| unreadable(index, e)),
    u16: |value: i64, index| value.try_into().map_err(|e: std::num::TryFromIntError| unreadable(index, e)),
    String: |value: String, index| Ok(unescape(value)),
    Vec<u8>: |value: Vec<u8>, index| Ok(value),
    Vec<Vec<u8>>: |value: Vec<Vec<u8>>, index| Ok(value),
}

impl<T: Column> Column for Option<T> {
    fn read<I: ColumnIndex<PgRow> + fmt::Display + Copy>(row: &PgRow, column: I) -> sqlx::Result<Self> {
        if row.try_get_raw(column)?.is_null() { Ok(None) } else { T::read(row, column).map(Some) }
    }
}

/// A query and its values.
pub(crate) struct Query<'q> {
    sql: &'q str,
    // An error stays with the query until it is run.
    arguments: Result<PgArguments, BoxDynError>,
}

/// A query.
pub(crate) fn query(sql: &str) -> Query<'_> {
    Query { sql, arguments: Ok(PgArguments::default()) }
}

impl<'q> Query<'q> {
    pub(crate) fn bind<T: Bind>(mut self, value: T) -> Self {
        if let Ok(arguments) = &mut self.arguments
            && let Err(error) = arguments.add(value.sql())
        {
            self.arguments = Err(error);
        }
        self
    }

    fn ready(self) -> sqlx::Result<sqlx::query::Query<'q, Postgres, PgArguments>> {
        Ok(sqlx::query_with(self.sql, self.arguments.map_err(sqlx::Error::Encode)?))
    }

    pub(crate) async fn execute<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<PgQueryResult> {
        self.ready()?.execute(on).await
    }

    pub(crate) async fn fetch_one<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<PgRow> {
        self.ready()?.fetch_one(on).await
    }

    pub(crate) async fn fetch_optional<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<Option<PgRow>> {
        self.ready()?.fetch_optional(on).await
    }

    pub(crate) async fn fetch_all<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<Vec<PgRow>> {
        self.ready()?.fetch_all(on).await
    }

    /// The rows, one in memory at a time.
    pub(crate) fn fetch<'e>(self, on: &'e mut PgConnection) -> BoxStream<'e, sqlx::Result<PgRow>>
    where
        'q: 'e,
    {
        match self.ready() {
            Ok(query) => query.fetch(on),
            Err(error) => Box::pin(stream::once(future::ready(Err(error)))),
        }
    }
}

/// A query of one value.
pub(crate) struct Scalar<'q, T> {
    query: Query<'q>,
    value: PhantomData<fn() -> T>,
}

/// A query of one value.
pub(crate) fn scalar<T: Column>(sql: &str) -> Scalar<'_, T> {
    Scalar { query: query(sql), value: PhantomData }
}

impl<'q, T: Column> Scalar<'q, T> {
    pub(crate) fn bind<V: Bind>(mut self, value: V) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_one<'c, E: Executor<'c, Database = Postgres>>(self, on: E) -> sqlx::Result<T> {
        T::read(&self.query.fetch_one(on).await?, 0)
    }

    pub(crate) async fn fetch_optional<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<Option<T>> {
        self.query.fetch_optional(on).await?.map(|row| T::read(&row, 0)).transpose()
    }

    pub(crate) async fn fetch_all<'c, E: Executor<'c, Database = Postgres>>(
        self,
        on: E,
    ) -> sqlx::Result<Vec<T>> {
        self.query.fetch_all(on).await?.iter().map(|row| T::read(row, 0)).collect()
    }
}

/// A query that is put together of parts.
pub(crate) struct Builder {
    sql: String,
    arguments: Result<PgArguments, BoxDynError>,
    bound: usize,
}

impl Builder {
    pub(crate) fn new(sql: impl Into<String>) -> Self {
        Self { sql: sql.into(), arguments: Ok(PgArguments::default()), bound: 0 }
    }

    pub(crate) fn push(&mut self, sql: impl fmt::Display) -> &mut Self {
        self.sql.push_str(&sql.to_string());
        self
    }

    pub(crate) fn push_bind<T: Bind>(&mut self, value: T) -> &mut Self {
        if let Ok(arguments) = &mut self.arguments
            && let Err(error) = arguments.add(value.sql())
        {
            self.arguments = Err(error);
        }
        self.bound += 1;
        let place = format!("${}", self.bound);
        self.push(place)
    }

    pub(crate) fn query(&mut self) -> Query<'_> {
        let arguments = std::mem::replace(&mut self.arguments, Ok(PgArguments::default()));
        Query { sql: &self.sql, arguments }
    }
}

/// A value of a row, by its column.
pub(crate) fn get<T: Column>(row: &PgRow, column: &'static str) -> Result<T> {
    T::read(row, column).map_err(failed("reading a row"))
}
