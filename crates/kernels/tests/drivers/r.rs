//! The driver for R in a real R.

use crate::pipes::{Interpreter, Kind, picture, text};

fn r() -> Interpreter {
    Interpreter::start(Kind::R)
}

#[test]
fn what_a_cell_assigns_is_there_for_the_next() {
    let mut r = r();
    assert!(r.name.starts_with("R 4"), "{}", r.name);
    assert_eq!(r.value("x <- 5\ny <- c(1, 2)\nx\ny\nx + 1"), "[1] 6");
    assert_eq!(r.stdout("[1] 1 2\n"), "[1] 5\n");
    assert_eq!(r.value("ls()"), "[1] \"x\" \"y\"");
    assert_eq!(r.value("x <- 7"), "");
    assert_eq!(r.value("writeLines(\"z <- x + 1\", \"z.R\"); source(\"z.R\"); z"), "[1] 8");
    assert_eq!(
        r.value("print.mine <- function(x, ...) cat(\"mine\\n\"); structure(1, class = \"mine\")"),
        "mine"
    );
    assert_eq!(r.value("\"é日本😀\""), "[1] \"é日本😀\"");
    for _ in 0..1000 {
        r.value("x <- x + 1");
    }
    assert_eq!(r.value("x"), "[1] 1007");
}

#[test]
fn an_interrupt_ends_the_cell_and_keeps_the_variables() {
    let mut r = r();
    r.value("x <- 5");
    for code in [
        "while (TRUE) {}",
        "Sys.sleep(1000)",
        "repeat tryCatch(Sys.sleep(1), error = function(e) 1)",
        "system(\"sleep 1000\"); Sys.sleep(1000)",
    ] {
        assert_eq!(
            r.interrupted(&format!("cat(\"running\\n\"); {code}\nx <- 6")).error(),
            "Interrupt",
            "{code}"
        );
    }
    for _ in 0..5 {
        r.interrupt();
        assert_eq!(r.value("x"), "[1] 5");
    }
}

#[test]
fn errors_and_warnings_are_apart() {
    let mut r = r();
    let cell = r.cell("f <- function(a) {\n  g(a)\n}\ng <- function(b) {\n  stop(\"bad \", b)\n}\nf(1)");
    assert_eq!((cell.error(), cell.message()), ("Error", "bad 1"));
    let wanted = "Error in g(a) : bad 1\n  at <cell 1>:7\n  f(1)\n  g(a)  at <cell 1>:2\n  stop(\"bad \", b)  at <cell 1>:5";
    assert_eq!(cell.traceback(), wanted);
    let cell = r.cell("1 +\n + )");
    assert_eq!(cell.error(), "ParseError");
    assert!(cell.message().starts_with("<cell 2>:2:4: unexpected ')'"), "{}", cell.message());
    assert_eq!(r.value("warning(\"careful\"); message(\"said\"); log(-1)"), "[1] NaN");
    assert_eq!(r.stderr("NaNs produced\n"), "Warning: careful\nsaid\nWarning in log(-1) : ");
    assert!(!r.cell("deep <- function(n) deep(n + 1); deep(1)").message().is_empty());
    assert_eq!(r.value("1 + 1"), "[1] 2");
}

#[test]
fn plots_are_pictures_of_800_by_600() {
    let mut r = r();
    let cell = r.cell("plot(1:10); lines(1:3); hist(c(1, 2, 2))\ninvisible()");
    assert_eq!(cell.displays.iter().map(picture).collect::<Vec<_>>(), [(800, 600); 2]);
    let cell = r.cell("library(ggplot2); ggplot(mtcars, aes(mpg, wt)) + geom_point()");
    assert_eq!(cell.displays.iter().map(picture).collect::<Vec<_>>(), [(800, 600)]);
    let cell = r.cell("plot(1); stop(\"after\")");
    assert_eq!((cell.displays.len(), cell.error()), (1, "Error"));
    let cell = r.cell("png(\"own.png\"); plot(1); invisible(dev.off())");
    assert_eq!((cell.displays.len(), cell.error()), (0, ""));
}

#[test]
fn data_frames_are_tables() {
    let mut r = r();
    let cell = r.cell("data.frame(a = 1:2, b = c(\"<x> & é\", NA))");
    assert_eq!(cell.text(), "  a       b\n1 1 <x> & é\n2 2    <NA>");
    assert_eq!(cell.displays[0]["type"], "text/html");
    let html = text(&cell.displays[0]);
    assert!(html.contains("<tr><td>1</td><td>1</td><td>&lt;x&gt; &amp; é</td></tr>"), "{html}");
    let html = text(&r.cell("data.frame(n = 1:250)").displays[0]);
    assert_eq!(html.matches("<tr>").count(), 101);
    assert!(html.contains("100 of 250 rows"), "{html}");
    assert_eq!(r.cell("matrix(1:4, 2)").displays.len(), 1);
    assert_eq!(text(&r.cell("display(\"text/html\", \"<b>\")").displays[0]), "<b>");
}

#[test]
fn widgets_are_pages_of_their_own() {
    let mut r = r();
    let cell = r.cell(
        "w <- htmlwidgets::createWidget('none', list(word = 'kept <here>'), package = 'htmlwidgets')\nw\nw",
    );
    assert_eq!((cell.text(), cell.displays.len()), ("", 2), "{:?}", cell.done);
    for display in &cell.displays {
        assert_eq!(display["type"], "text/html");
        let page = text(display);
        assert!(page.contains("HTMLWidgets") && page.contains("kept"), "{page}");
        assert!(!page.contains("<script src=\"") && !page.contains("_files/"), "{page}");
    }
}

#[test]
fn nothing_can_be_read_and_leaving_is_an_error() {
    let mut r = r();
    assert_eq!(
        r.value("c(readline(), length(readLines(\"stdin\")), length(scan(quiet = TRUE)))"),
        "[1] \"\"  \"0\" \"0\""
    );
    assert_eq!(r.cell("q()").error(), "Error");
    assert_eq!(r.cell("quit(status = 3)").error(), "Error");
    assert_eq!(r.value("closeAllConnections(); 1"), "[1] 1");
    r.begin("base::q(status = 3)");
    assert_eq!(r.status().code(), Some(3));
}

#[test]
fn children_have_not_the_protocol_and_forks_do_not_answer() {
    let mut r = r();
    r.value("system(\"ls -l /proc/self/fd; echo end\")");
    r.assert_apart(&r.stdout("end\n"));
    assert_eq!(r.value("unlist(parallel::mclapply(1:3, function(i) i^2, mc.cores = 2))"), "[1] 1 4 9");
    r.value("child <- parallel:::mcfork()");
    assert_eq!(r.value("1 + 1"), "[1] 2");
    r.close();
    assert_eq!(r.status().code(), Some(0));
}

#[test]
fn variables_change_and_long_values_are_cut() {
    let mut r = r();
    let entries = "A=é\\\\n\\nb\nHOME\n";
    r.request(format!("variables 0 {}\n{entries}", entries.len()).as_bytes());
    assert_eq!(
        r.value("identical(Sys.getenv(c(\"A\", \"HOME\"), names = FALSE), c(\"é\\\\n\\nb\", \"\"))"),
        "[1] TRUE"
    );
    let cell = r.cell("strrep(\"x\", 2e6)");
    assert_eq!(cell.text().len(), 1 << 20);
    assert_eq!(cell.done["lengths"]["result"], 2_000_006);
    assert_eq!(r.cell("stop(\"\\001\\t\\\\\\\"\\r\")").message(), "\u{1}\t\\\"\r");
    r.value("for (i in 1:32768) cat(strrep(\"x\", 63), \"\\n\", sep = \"\"); cat(\"end\\n\")");
    assert_eq!(r.stdout("end\n").len(), 2 << 20);
}
