use super::*;
use atoll_types::audit::Sha256;
use proptest::prelude::*;

fn parsed(text: &str) -> Result<Dockerfile> {
    Dockerfile::parse(text, BTreeMap::new(), BTreeMap::new())
}

fn kinds(text: &str) -> Vec<StepKind> {
    let read = parsed(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    read.steps.into_iter().map(|step| step.kind).collect()
}

fn refused(text: &str) -> String {
    let error = parsed(text).expect_err(text);
    assert_eq!(error.field.as_deref(), Some("dockerfile"));
    error.message
}

#[test]
fn a_whole_file_becomes_steps() {
    let text = r#"# syntax=docker/dockerfile:1
ARG VERSION=3.12
FROM python:${VERSION} AS base

# A comment
ARG MODE=fast
ENV A=1 B="two words" C=$A${MODE:-slow} D='$A' E=a\ b
ENV LEGACY the rest of it
RUN apt-get update && \
    # between
    apt-get install -y git \

    && echo "$HOME"
RUN ["pip", "install", "x"]
WORKDIR /srv/$MODE
COPY --chown=1000:1000 --chmod=0755 a.py "b c.py" ./
ADD data.tar.gz /data/
USER user
LABEL org.example.name="x" v=1
entrypoint ["python", "-u"]
CMD [ -f x ] && run
"#;
    let read = parsed(text).unwrap();
    assert_eq!(read.base, "python:3.12");
    let found: Vec<String> = read.steps.iter().map(|step| format!("{} {:?}", step.line, step.kind)).collect();
    let expected = [
        r#"7 Env([("A", "1"), ("B", "two words"), ("C", "fast"), ("D", "$A"), ("E", "a b")])"#,
        r#"8 Env([("LEGACY", "the rest of it")])"#,
        r#"9 Run { command: Shell("apt-get update &&     apt-get install -y git     && echo \"$HOME\""), arguments: [("MODE", "fast")] }"#,
        r#"14 Run { command: Exec(["pip", "install", "x"]), arguments: [("MODE", "fast")] }"#,
        r#"15 Workdir("/srv/fast")"#,
        r#"16 Copy { sources: ["a.py", "b c.py"], target: "./", unpack: false, owner: Some("1000:1000"), mode: Some("0755") }"#,
        r#"17 Copy { sources: ["data.tar.gz"], target: "/data/", unpack: true, owner: None, mode: None }"#,
        r#"18 User("user")"#,
        r#"19 Label([("org.example.name", "x"), ("v", "1")])"#,
        r#"20 Entrypoint(Exec(["python", "-u"]))"#,
        r#"21 Cmd(Shell("[ -f x ] && run"))"#,
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_not_supported_is_refused_with_its_line() {
    for (text, expected) in [
        ("", "there is no FROM"),
        ("FROM a\nFROM b", "line 2: a second FROM"),
        ("FROM --platform=x a", "line 1: FROM --platform is not supported"),
        ("FROM scratch", "line 1: FROM scratch"),
        ("FROM", "line 1: FROM needs an image"),
        ("RUN x", "line 1: RUN comes before FROM"),
        ("FROM a\nEXPOSE 80", "line 2: EXPOSE is not supported"),
        ("FROM a\n\nVOLUME /x", "line 3: VOLUME is not supported"),
        ("FROM a\nHEALTHCHECK NONE", "line 2: HEALTHCHECK is not supported"),
        ("FROM a\nSHELL [\"x\"]", "line 2: SHELL is not supported"),
        ("FROM a\nONBUILD RUN x", "line 2: ONBUILD is not supported"),
        ("FROM a\nRUN --mount=type=cache x", "line 2: RUN --mount is not supported"),
        ("FROM a\nCOPY --from=b x y", "line 2: COPY --from is not supported"),
        ("FROM a\nRUN <<EOF\necho\nEOF", "line 2: a heredoc in RUN is not supported"),
        ("FROM a\nCOPY <<-'E' /x\nE", "line 2: a heredoc in COPY is not supported"),
        ("FROM a\nADD https://example.com/x /x", "line 2: ADD of an address"),
        ("FROM a\nADD git@example.com:x /x", "line 2: ADD of an address"),
        ("FROM a\nCOPY ../x /x", "line 2: ../x leads out"),
        ("FROM a\nCOPY x", "line 2: COPY needs a source and a target"),
        ("FROM a\nCOPY --chmod=u+x x y", "line 2: --chmod is three or four octal digits"),
        ("FROM a\nENV A", "line 2: ENV: expected NAME=VALUE"),
        ("FROM a\nENV A=\"x", "line 2: ENV: a quote has no end"),
        ("FROM a\nENV A=${B#x}", "line 2: ENV: ${B…} is not supported"),
        ("FROM a\nENV A=${B", "line 2: ENV: ${B…} is not supported"),
        ("FROM a\nWORKDIR", "line 2: WORKDIR needs a value"),
        ("FROM a\nUSER $NONE", "line 2: USER needs a value"),
        ("FROM a\nRUN", "line 2: RUN needs a command"),
        ("FROM a\nCMD []", "line 2: CMD names no program"),
        ("FROM a\nARG 1=2", "line 2: 1 is no name"),
        ("# escape=`\nFROM a", "line 1: another escape character"),
        ("FROM a\nRUN \\\n# x\nx\nNO y", "line 5: NO is not supported"),
    ] {
        let message = refused(text);
        assert!(message.starts_with(expected), "{text:?}: {message}");
    }
    assert!(
        refused(&format!("FROM a\n{}", "RUN x\n".repeat(MOST_STEPS + 1))).contains("more than 200 steps")
    );
    assert!(refused(&"#".repeat(LONGEST_DOCKERFILE + 1)).contains("bytes"));
}

#[test]
fn arguments_have_their_place() {
    let given: BTreeMap<String, String> = [("V".into(), "2".into()), ("W".into(), "given".into())].into();
    let text = "ARG V=1\nFROM a:$V\nENV BEFORE=$V\nARG V\nARG W=usual\nENV AFTER=$V-$W X=${NONE:+set}${V:+set}\nRUN x";
    let read = Dockerfile::parse(text, given, BTreeMap::new()).unwrap();
    assert_eq!(read.base, "a:2");
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(read.steps[0].kind, StepKind::Env(vec![pair("BEFORE", "")]));
    assert_eq!(read.steps[1].kind, StepKind::Env(vec![pair("AFTER", "2-given"), pair("X", "set")]));
    let StepKind::Run { arguments, .. } = &read.steps[2].kind else { panic!() };
    assert_eq!(arguments, &[pair("V", "2"), pair("W", "given")]);
}

#[test]
fn a_value_that_no_line_takes_is_refused() {
    let given: BTreeMap<String, String> = [("V".into(), "2".into()), ("LOST".into(), "x".into())].into();
    let refused = Dockerfile::parse("ARG V\nFROM a:$V\nENV LOST=1", given, BTreeMap::new()).unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("args"));
    assert!(refused.message.contains("no ARG LOST"), "{refused}");
}

#[test]
fn instructions_see_the_variables_of_the_base() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let base: BTreeMap<_, _> =
        [pair("PATH", "/base/bin"), pair("HOME_OF", "/srv/app"), pair("WHO", "app")].into();
    let text = "ARG TAG=1\nFROM a:$TAG\nARG WHO=other\nENV PATH=/opt/x:$PATH\nENV PATH=/opt/y:$PATH\nWORKDIR $HOME_OF\n\
                COPY a $HOME_OF/a\nUSER ${WHO}\nLABEL of=$WHO";
    assert_eq!(Dockerfile::base(text, &BTreeMap::new()).unwrap(), "a:1");
    let read = Dockerfile::parse(text, BTreeMap::new(), base).unwrap();
    let kinds: Vec<StepKind> = read.steps.into_iter().map(|step| step.kind).collect();
    let copy = StepKind::Copy {
        sources: vec!["a".into()],
        target: "/srv/app/a".into(),
        unpack: false,
        owner: None,
        mode: None,
    };
    let expected = [
        StepKind::Env(vec![pair("PATH", "/opt/x:/base/bin")]),
        StepKind::Env(vec![pair("PATH", "/opt/y:/opt/x:/base/bin")]),
        StepKind::Workdir("/srv/app".into()),
        copy,
        StepKind::User("app".into()),
        StepKind::Label(vec![pair("of", "app")]),
    ];
    assert_eq!(kinds, expected);
    // One whose base names no PATH has the usual one.
    let set = StepKind::Env(vec![pair("PATH", &format!("/opt/x:{USUAL_PATH}"))]);
    assert_eq!(self::kinds("FROM a\nENV PATH=/opt/x:$PATH"), [set]);
    // The base's variables are no arguments of FROM.
    assert!(Dockerfile::base("FROM $WHO", &BTreeMap::new()).is_err());
    assert_eq!(Dockerfile::base("FROM a\nVOLUME x", &BTreeMap::new()).unwrap(), "a");
}

#[test]
fn shells_keep_what_is_theirs() {
    let shell = |line: &str| StepKind::Run { command: CommandForm::Shell(line.into()), arguments: vec![] };
    assert_eq!(
        kinds("FROM a\nRUN cat <<<x $A ${B#c} \"<<EOF\" $((1<<2))"),
        [shell("cat <<<x $A ${B#c} \"<<EOF\" $((1<<2))")]
    );
    assert_eq!(kinds("FROM a\nRUN a # b"), [shell("a # b")]);
}

#[test]
fn variables_that_double_are_refused() {
    let text = format!("FROM a\nENV A=xxxxxxxxxxxxxxxx\n{}", "ENV A=$A$A\n".repeat(100));
    assert!(refused(&text).contains("more than 32768 bytes"));
    let deep = format!("FROM a\nENV A={}x{}", "${B:-".repeat(50), "}".repeat(50));
    assert!(refused(&deep).contains("nested deeper"));
}

#[test]
fn a_key_is_of_all_that_came_before() {
    let keys = |base: &str, text: &str, files: u8| {
        let steps = parsed(text).unwrap().steps;
        step_keys(base, false, &steps, |_| Ok(Sha256([files; 32]))).unwrap()
    };
    let text = "FROM a\nENV A=1\nCOPY x y\nRUN z";
    let usual = keys("base", text, 1);
    assert_eq!(keys("base", "FROM a\n\n# moved\nENV A=1\nCOPY x y\nRUN z", 1), usual);
    let shared = |other: Vec<StepKey>| usual.iter().zip(&other).take_while(|(a, b)| a == b).count();
    assert_eq!(shared(keys("other", text, 1)), 0);
    assert_eq!(shared(keys("base", text, 2)), 1, "another file");
    assert_eq!(shared(keys("base", "FROM a\nENV A=1\nCOPY x y\nRUN zz", 1)), 2);
    assert_eq!(shared(keys("base", "FROM a\nENV A=2\nCOPY x y\nRUN z", 1)), 0);
    assert_eq!(shared(keys("base", "FROM a\nENV A=1\nADD x y\nRUN z", 1)), 1);
}

proptest! {
    #[test]
    fn no_text_breaks_it(text in "(FROM a\n)?([A-Z]{2,5} |ENV |RUN |COPY |ADD |ARG |LABEL |[-$\\{\\}:+\"'\\\\=<a#\\[\\], é\n]){0,30}") {
        if let Ok(read) = parsed(&text) {
            let lines = text.lines().count();
            prop_assert!(read.steps.iter().all(|step| (1..=lines).contains(&(step.line as usize))));
            prop_assert!(step_keys("x", false, &read.steps, |_| Ok(Sha256([0; 32]))).is_ok());
        }
    }
}
