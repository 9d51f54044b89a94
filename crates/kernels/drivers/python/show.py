"""What values look like: pictures, HTML and sound by the methods that notebooks agreed upon. The same with and
without IPython. An object that cannot show itself costs the cell nothing but a word on stderr."""

# The first that an object has is shown.
KINDS = (
    ("text/html", "_repr_html_"), ("image/svg+xml", "_repr_svg_"), ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"), ("audio/wav", None), ("audio/mpeg", None), ("audio/ogg", None),
    ("video/mp4", None), ("image/gif", None), ("image/webp", None), ("video/webm", None),
    ("application/pdf", "_repr_pdf_"), ("text/markdown", "_repr_markdown_"), ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"), ("application/javascript", "_repr_javascript_"),
)
TEXTUAL = ("text/", "image/svg+xml", "application/json", "application/javascript")
# What a display may be at most, after which HTML is packed.
MOST_HTML = 5 << 20


def text_of(value):
    try:
        return repr(value)
    except Exception as error:
        complain(error)
        return "<%s object: its repr failed: %s>" % (type(value).__name__, type(error).__name__)


def complain(error):
    part("errors")
    sys.stderr.write(describe(error, {})["traceback"] + "\n")


def show_value(value):
    """The last value of a cell: its rich form as a display, its text as the result."""
    if not own_display(value):
        rich = rich_form(value)
        if rich is not None:
            publish(*rich)
    return text_of(value)


def show(thing):
    """`display(thing)`."""
    if own_display(thing):
        return
    rich = rich_form(thing, at_once=True)
    if rich is not None:
        publish(*rich)
    else:
        print(text_of(thing))


def method(thing, name):
    if isinstance(thing, type):
        return None
    try:
        if callable(getattr(thing, "_ipython_canary_method_should_not_exist_", None)):
            return None  # it answers to every name
        found = getattr(thing, name, None)
    except Exception:
        return None
    return found if callable(found) else None


def own_display(thing):
    """Objects that call IPython's display themselves."""
    shows = method(thing, "_ipython_display_")
    if shows is None or is_plotly(thing) or not have_ipython():
        return False
    try:
        shows()
        return True
    except NotImplementedError:
        return False
    except Exception as error:
        complain(error)
        return False


def rich_form(thing, at_once=False):
    """`(type, data)`, or None where the thing is only text."""
    figure = sys.modules.get("matplotlib.figure")
    if figure is not None and isinstance(thing, figure.Figure):
        return picture_of(thing, at_once)
    if is_plotly(thing):
        return attempt("text/html", lambda: interactive_page(thing))
    bundle = attempt("", lambda: method(thing, "_repr_mimebundle_")(include=None, exclude=None)) \
        if method(thing, "_repr_mimebundle_") else None
    bundle = bundle[1] if bundle else {}
    for kind, name in KINDS:
        if bundle.get(kind) is not None:
            return kind, bundle[kind]
        found = registered(thing, kind) or (method(thing, name) if name else None)
        form = attempt(kind, found) if found else None
        if form is not None:
            return form
    return None


def attempt(kind, function):
    try:
        data = function()
    except Exception as error:
        complain(error)
        return None
    if isinstance(data, tuple):
        data = data[0]  # the rest is metadata
    return None if data is None else (kind, data)


def registered(thing, kind):
    """A printer that user code gave IPython for this type."""
    formatter = S.shell.display_formatter.formatters.get(kind) if S.shell is not None else None
    try:
        printer = formatter.lookup(thing) if formatter is not None else None
    except KeyError:
        return None
    return (lambda: printer(thing)) if printer else None


def publish(kind, data):
    if not kind.startswith(TEXTUAL):
        if not isinstance(data, str):  # a string is base64 already
            data = hidden("binascii").b2a_base64(data, newline=False).decode()
    elif isinstance(data, bytes):
        data = data.decode("utf-8", "replace")
    elif not isinstance(data, str):
        data = hidden("json").dumps(data, default=repr)
    data = whole_characters(data)
    # Escapes can make six bytes of one.
    size = len(data) if kind[:6] in ("image/", "audio/", "video/") else len(quote(data).encode())
    if size > LONGEST_LINE - 4096:
        kind, data = "text/plain", "[a display of type %s was left out: %d characters]" % (kind, len(data))
    emit(event="display", type=kind, data=data)


def publish_bundle(bundle):
    """What IPython's own display functions give: several forms of one thing."""
    for kind, _ in KINDS:
        if bundle.get(kind) is not None:
            return publish(kind, bundle[kind])
    if bundle.get("text/plain") is not None:
        print(bundle["text/plain"])


# -- Matplotlib and Plotly.

def picture_of(figure, close):
    pyplot = sys.modules.get("matplotlib.pyplot")
    is_open = pyplot is not None and any(pyplot.figure(number) is figure for number in pyplot.get_fignums())
    if is_open and not close:
        return None  # it is shown at the cell's end, with the others
    form = attempt("image/png", lambda: png_of(figure))
    if is_open:
        pyplot.close(figure)
    return form


def png_of(figure):
    target = io.BytesIO()
    figure.savefig(target, format="png", bbox_inches="tight")
    return target.getvalue()


def show_figures(*_arguments, **_options):
    """`plt.show()`, and the end of every cell: what is open is shown and closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        try:
            # One with nothing on it was made by the way, and not to be looked at.
            drawn = len(figure.get_children()) > 1
            form = attempt("image/png", lambda: png_of(figure)) if drawn else None
            if form is not None:
                publish(*form)
        finally:
            pyplot.close(figure)


def is_plotly(thing):
    plotly = sys.modules.get("plotly.basedatatypes")
    return plotly is not None and isinstance(thing, plotly.BaseFigure)


def interactive_page(figure):
    """A page that needs no network. Where Plotly's script is too large for a display, the page unpacks itself."""
    page = figure.to_html(include_plotlyjs=True, full_html=True)
    if len(page) <= MOST_HTML:
        return page
    packed = hidden("zlib").compress(page.encode("utf-8", "replace"), 6)
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"></head><body><script>(async()=>{'
        'const b=Uint8Array.from(atob("%s"),c=>c.charCodeAt(0));'
        'const s=new Blob([b]).stream().pipeThrough(new DecompressionStream("deflate"));'
        "const t=await new Response(s).text();document.open();document.write(t);document.close()})()</script>"
        "</body></html>"
        % hidden("binascii").b2a_base64(packed, newline=False).decode())


def after_cell(error):
    """Whatever a cell left to be shown. Returns the cell's error."""
    try:
        if "matplotlib.pyplot" in sys.modules:
            enter(show_figures)
        if S.shell is not None:
            enter(end_of_cell)
    except KeyboardInterrupt as interrupt:
        return error or interrupt
    except BaseException as raised:
        complain(raised)
    return error
