# The driver for R. Cells are evaluated in the global environment, where source(), clusterExport() and many
# others look; the driver lives in an environment of its own, of which only what is attached as "atoll"
# can be seen. Interrupts are held back except while a cell runs.
#
# Descriptors 3 and 4 are opened anew with close-on-exec (the "e") and then closed. R's own buffers are for
# text only: on a binary connection a line is there as soon as it has come.

LONGEST_TEXT <- 1048576L
LONGEST_MESSAGE <- 65536L
MOST_PAGES <- 200L
MOST_ROWS <- 100L
MOST_COLUMNS <- 50L

events <- file("/proc/self/fd/4", "web", raw = TRUE)
get("closeFD", asNamespace("parallel"))(c(3L, 4L))
self <- Sys.getpid()
if (!isTRUE(l10n_info()[["UTF-8"]])) suppressWarnings(Sys.setlocale("LC_CTYPE", "C.UTF-8"))
options(warn = 1L)

# ---- The protocol ----

valid <- function(text) {
  text <- enc2utf8(paste(as.character(text), collapse = "\n"))
  if (validUTF8(text)) text else iconv(text, "UTF-8", "UTF-8", sub = "byte")
}

quoted <- function(text) {
  text <- gsub("\\", "\\\\", valid(text), fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  text <- gsub("\n", "\\n", text, fixed = TRUE)
  if (grepl("[\001-\037]", text)) {
    for (code in setdiff(1:31, 10L)) text <- gsub(intToUtf8(code), sprintf("\\u%04x", code), text, fixed = TRUE)
  }
  paste0("\"", text, "\"")
}

# The beginning of a long text, with how long it was.
cut_at <- function(text, longest) {
  text <- valid(text)
  length <- nchar(text, "chars")
  if (length <= longest) list(text = text, length = NULL) else list(text = substr(text, 1L, longest), length = length)
}

send <- function(...) {
  writeBin(charToRaw(paste0(..., "\n")), events)
  flush(events)
}

send_done <- function(id, result, error) {
  lengths <- NULL
  field <- function(name, text, longest) {
    part <- cut_at(text, longest)
    if (!is.null(part$length)) lengths <<- c(lengths, sprintf("%s:%d", quoted(name), part$length))
    quoted(part$text)
  }
  result <- if (is.null(result)) "null" else paste0("{\"text/plain\":", field("result", result, LONGEST_TEXT), "}")
  error <- if (is.null(error)) "null" else paste0(
    "{\"type\":", quoted(substr(error$type, 1L, 256L)),
    ",\"message\":", field("message", error$message, LONGEST_MESSAGE),
    if (!is.null(error$traceback)) paste0(",\"traceback\":", field("traceback", error$traceback, LONGEST_TEXT)), "}")
  send("{\"event\":\"done\",\"id\":", id, ",\"result\":", result, ",\"error\":", error,
    if (!is.null(lengths)) paste0(",\"lengths\":{", paste(lengths, collapse = ","), "}"), "}")
}

# ---- Displays ----

folder <- tempfile("displays")
dir.create(folder, mode = "0700")
count <- 0L
fresh <- function(ending) {
  count <<- count + 1L
  file.path(folder, sprintf("%08d%s", count, ending))
}

show_file <- function(type, file) {
  send("{\"event\":\"display\",\"type\":", quoted(type), ",\"file\":", quoted(file), "}")
}

show_text <- function(type, text) {
  file <- fresh("-text")
  writeBin(charToRaw(valid(text)), file)
  show_file(type, file)
}

# The device that a cell's first plot opens; its pages are shown when the cell is over.
pages <- character()
open_device <- function(...) {
  pattern <- fresh("-%04d.png")
  grDevices::png(filename = pattern, width = 800, height = 600, type = "cairo")
  pages <<- c(pages, pattern)
}
options(device = open_device)

show_pages <- function() {
  for (number in grDevices::dev.list()) {
    if (isTRUE(attr(.Devices[[number]], "filepath") %in% pages)) grDevices::dev.off(number)
  }
  pages <<- character()
  files <- list.files(folder, pattern = "-[0-9]{4,}[.]png$", full.names = TRUE)
  for (file in utils::head(files, MOST_PAGES)) {
    moved <- fresh(".png")
    if (file.rename(file, moved)) show_file("image/png", moved)
  }
  unlink(utils::tail(files, -MOST_PAGES))
}

escaped <- function(text) {
  text <- vapply(as.character(text), function(each) substr(valid(each), 1L, 1000L), "", USE.NAMES = FALSE)
  text <- gsub("&", "&amp;", text, fixed = TRUE)
  text <- gsub("<", "&lt;", text, fixed = TRUE)
  text <- gsub(">", "&gt;", text, fixed = TRUE)
  gsub("\"", "&quot;", text, fixed = TRUE)
}

cells_of <- function(column) {
  one <- function(cell) paste(format(cell, trim = TRUE), collapse = ", ")
  escaped(
    if (is.list(column)) vapply(column, one, "")
    else if (is.character(column)) ifelse(is.na(column), "NA", column)
    else format(column, trim = TRUE))
}

as_table <- function(value) {
  rows <- nrow(value)
  columns <- ncol(value)
  named <- !is.null(rownames(value)) && !inherits(value, c("tbl_df", "data.table"))
  part <- as.data.frame(utils::head(value, MOST_ROWS), stringsAsFactors = FALSE)
  part <- part[, seq_len(min(columns, MOST_COLUMNS)), drop = FALSE]
  cells <- lapply(part, cells_of)
  if (named) cells <- c(list(escaped(rownames(part))), cells)
  heads <- c(if (named) "", escaped(names(part)))
  cells <- lapply(cells, function(cell) paste0("<td>", cell, "</td>"))
  lines <- if (rows > 0L) do.call(paste0, c(list("<tr>"), unname(cells), list("</tr>")))
  note <- if (rows > MOST_ROWS || columns > MOST_COLUMNS) {
    sprintf("\n<p>%d of %d rows, %d of %d columns</p>", min(rows, MOST_ROWS), rows, min(columns, MOST_COLUMNS), columns)
  }
  paste0("<table>\n<thead><tr>", paste0("<th>", heads, "</th>", collapse = ""), "</tr></thead>\n<tbody>\n",
    paste(lines, collapse = "\n"), "\n</tbody>\n</table>", note)
}

show_richly <- function(value) {
  if ((is.data.frame(value) || (is.matrix(value) && is.atomic(value))) && ncol(value) > 0L) {
    html <- tryCatch(as_table(value), error = function(error) NULL)
    if (!is.null(html)) show_text("text/html", html)
  } else if (inherits(value, c("shiny.tag", "shiny.tag.list", "html"))) {
    show_text("text/html", as.character(value))
  }
}

# A widget as one page that asks no network for anything: pandoc puts scripts and styles into it. To print it would open a browser.
show_widget <- function(value) {
  file <- fresh(".html")
  on.exit(unlink(sub("[.]html$", "_files", file), recursive = TRUE))
  saved <- tryCatch({
    htmlwidgets::saveWidget(value, file, selfcontained = TRUE)
    file.exists(file)
  }, error = function(error) {
    message("the widget cannot be made one page: ", conditionMessage(error))
    FALSE
  })
  if (saved) show_file("text/html", file)
}

# ---- Cells ----

# Called from below the global environment, where a cell's own methods are.
print_value <- function(value) if (base::isS4(value)) methods::show(value) else base::print(value)
environment(print_value) <- new.env(parent = globalenv())

printed <- function(value) {
  into <- rawConnection(raw(0), "w")
  sink(into)
  on.exit({ sink(); close(into) })
  print_value(value)
  text <- rawToChar(rawConnectionValue(into))
  Encoding(text) <- "UTF-8"
  sub("\n$", "", text)
}

# Every value that R would show is printed, but for that of the last expression: that is the result.
evaluate <- function(expressions, progress) {
  result <- NULL
  for (index in seq_along(expressions)) {
    progress(index)
    shown <- withVisible(eval(expressions[[index]], globalenv()))
    if (!shown$visible) next
    if (inherits(shown$value, "htmlwidget")) {
      show_widget(shown$value)
    } else if (index < length(expressions)) {
      print_value(shown$value)
    } else {
      show_richly(shown$value)
      result <- printed(shown$value)
    }
  }
  if (identical(result, "")) NULL else result
}

# The driver's own call, which is the cell's as far as R knows.
OURS <- quote(eval(expressions[[index]], globalenv()))

# The calls of the cell, outermost first, with the lines they were made at.
story <- function(error, calls, place) {
  call <- conditionCall(error)
  short <- function(call) deparse(call, nlines = 1L)[[1L]]
  first <- if (is.null(call) || identical(call, OURS)) "Error: " else paste0("Error in ", short(call), " : ")
  ours <- vapply(calls, identical, NA, OURS)
  calls <- if (any(ours)) calls[-seq_len(max(which(ours)))] else list()
  ends <- vapply(calls, function(call) is.function(call[[1L]]) || identical(call[[1L]], quote(.handleSimpleError)), NA)
  if (any(ends)) calls <- utils::head(calls, which(ends)[[1L]] - 1L)
  lines <- vapply(calls, function(call) {
    at <- attr(call, "srcref")
    file <- if (is.null(at)) NULL else attr(at, "srcfile")$filename
    paste0("  ", short(call), if (!is.null(file)) paste0("  at ", file, ":", at[[1L]]))
  }, "")
  if (length(lines) > 40L) lines <- c(utils::head(lines, 20L), "  ...", utils::tail(lines, 20L))
  paste(c(paste0(first, conditionMessage(error)), paste0("  at ", place), lines), collapse = "\n")
}

# A warning at the top of a cell is said without the driver's call.
warn <- function(condition) {
  if (!identical(conditionCall(condition), OURS) || !getOption("warn") %in% 0:1) return()
  cat("Warning: ", conditionMessage(condition), "\n", sep = "", file = stderr())
  invokeRestart("muffleWarning")
}

execute <- function(id, code) {
  name <- sprintf("<cell %s>", id)
  calls <- NULL
  result <- NULL
  failure <- NULL
  place <- name
  expressions <- NULL
  progress <- function(index) place <<- paste0(name, ":", attr(expressions, "srcref")[[index]][[1L]])
  tryCatch(allowInterrupts(withCallingHandlers({
    lines <- strsplit(code, "\n", fixed = TRUE)[[1L]]
    expressions <- parse(text = lines, keep.source = TRUE, srcfile = srcfilecopy(name, lines), encoding = "UTF-8")
    result <- evaluate(expressions, progress)
  }, warning = warn, error = function(error) calls <<- sys.calls())),
  error = function(error) {
    type <- class(error)[[1L]]
    if (is.null(expressions)) type <- "ParseError" else if (type == "simpleError") type <- "Error"
    failure <<- list(type = type, message = conditionMessage(error),
      traceback = if (!is.null(expressions)) tryCatch(story(error, calls, place), error = function(other) NULL))
  },
  interrupt = function(condition) failure <<- list(type = "Interrupt", message = "the cell was interrupted"))
  if (Sys.getpid() != self) tools::pskill(Sys.getpid(), 9L)
  tryCatch(show_pages(), error = function(error) message("the plot cannot be shown: ", conditionMessage(error)))
  flush(stdout())
  flush(stderr())
  send_done(id, if (is.null(failure)) result, failure)
}

# ---- For a person who types ----

# R's own completion, as its prompt has it.
completions <- function(code) {
  line <- utils::tail(strsplit(code, "\n", fixed = TRUE)[[1L]], 1L)
  if (length(line) == 0L || endsWith(code, "\n")) return(list(prefix = "", matches = character()))
  ask <- function(name) get(name, asNamespace("utils"))
  ask(".assignLinebuffer")(line)
  ask(".assignEnd")(nchar(line))
  prefix <- ask(".guessTokenFromLine")()
  ask(".completeToken")()
  matches <- ask(".retrieveCompletions")()
  list(prefix = if (is.null(prefix)) "" else prefix, matches = utils::head(matches[nzchar(matches)], 1000L))
}

status <- function(code) tryCatch({
  parse(text = code, encoding = "UTF-8")
  "complete"
}, error = function(error) {
  if (grepl("unexpected end of input|INCOMPLETE_STRING", conditionMessage(error))) "incomplete" else "invalid"
})

complete <- function(id, code) {
  found <- tryCatch(allowInterrupts(completions(code)),
    error = function(error) NULL, interrupt = function(condition) NULL)
  if (is.null(found)) found <- list(prefix = "", matches = character())
  send("{\"event\":\"completion\",\"id\":", id, ",\"prefix\":", quoted(found$prefix),
    ",\"matches\":[", paste(vapply(found$matches, quoted, ""), collapse = ","), "],\"status\":",
    quoted(status(code)), "}")
}

# The machine's repository, where none is set: R asks a person otherwise.
use_repository <- function() {
  ours <- Sys.getenv("ATOLL_R_REPOSITORY")
  if (nzchar(ours) && identical(unname(getOption("repos")["CRAN"]), "@CRAN@")) options(repos = c(CRAN = ours))
}

variables <- function(text) {
  for (entry in strsplit(text, "\n", fixed = TRUE)[[1L]]) {
    entry <- gsub("\\\\", "\001", entry, fixed = TRUE)
    entry <- gsub("\001", "\\", gsub("\\n", "\n", entry, fixed = TRUE), fixed = TRUE)
    name <- sub("=.*", "", entry)
    if (!grepl("^[A-Za-z_][A-Za-z0-9_]*$", name)) next
    value <- substring(entry, nchar(name) + 2L)
    if (entry == name) Sys.unsetenv(name) else do.call(Sys.setenv, structure(list(value), names = name))
  }
  use_repository()
}

# ---- What a cell sees besides R ----

leave <- function(...) stop("a cell cannot end R; restart the kernel instead", call. = FALSE)
attach(list2env(list(
  q = leave,
  quit = leave,
  closeAllConnections = function() {
    while (sink.number() > 0L) sink()
    ours <- c(as.integer(requests), as.integer(events))
    for (number in setdiff(row.names(showConnections()), ours)) close(getConnection(as.integer(number)))
    invisible()
  },
  display = function(type, text, file = NULL) {
    if (is.null(file)) return(invisible(show_text(type, text)))
    copy <- fresh("-copy")
    if (!file.copy(file, copy)) stop("cannot read ", file, call. = FALSE)
    invisible(show_file(type, copy))
  })), name = "atoll", warn.conflicts = FALSE)

# What is installed for the user later is found too: R looks there only if it is there at its start.
local({
  own <- Sys.getenv("R_LIBS_USER")
  if (nzchar(own)) {
    own <- path.expand(strsplit(own, .Platform$path.sep, fixed = TRUE)[[1L]][[1L]])
    dir.create(own, recursive = TRUE, showWarnings = FALSE)
    .libPaths(c(own, .libPaths()))
  }
})

use_repository()
send("{\"event\":\"ready\",\"interpreter\":", quoted(paste("R", getRversion())), "}")
suspendInterrupts(repeat {
  header <- readLines(requests, 1L)
  if (length(header) == 0L) break
  header <- strsplit(header, " ", fixed = TRUE)[[1L]]
  if (length(header) != 3L || !grepl("^[0-9]{1,8}$", header[[3L]])) next
  text <- rawToChar(readBin(requests, "raw", as.integer(header[[3L]])))
  Encoding(text) <- "UTF-8"
  # An interrupt that came while nothing ran interrupts nothing.
  tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(condition) NULL)
  numbered <- grepl("^[0-9]{1,19}$", header[[2L]])
  if (header[[1L]] == "execute" && numbered) execute(header[[2L]], text)
  else if (header[[1L]] == "complete" && numbered) complete(header[[2L]], text)
  else if (header[[1L]] == "variables") variables(text)
})
base::quit(save = "no", status = 0L, runLast = FALSE)
