"""Places in a C++ source where one small edit makes another program, found in clang's syntax tree.

A site is a range of bytes and what stands there instead. It is never inside a macro, a constant expression or a
function that only makes text: `Site.kind` says which edit it is (see KINDS).
"""
from dataclasses import dataclass
import json
import pathlib
import re
import shlex

try:
    from clang import cindex
    from clang.cindex import CursorKind as K, TypeKind as T
except ImportError as missing:
    raise SystemExit("mutation: the Python package libclang is missing. Install it: pip install libclang") from missing

KINDS = {
    "comparison": "another comparison: < for <=, == for !=",
    "logic": "and for or",
    "arithmetic": "another operator between numbers",
    "constant": "an integer one larger",
    "boolean": "true for false",
    "condition": "the condition of an if, negated",
    "dropped": "a statement left out: a call, an assignment, a wait",
    "swapped": "two neighbouring arguments of one type, swapped",
}
COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "+", "+=": "-=", "-=": "+=", "*=": "+="}
NUMBERS = {T.INT, T.UINT, T.LONG, T.ULONG, T.LONGLONG, T.ULONGLONG, T.SHORT, T.USHORT, T.UCHAR, T.SCHAR, T.FLOAT,
           T.DOUBLE}
WRAPPERS = {K.UNEXPOSED_EXPR, K.PAREN_EXPR}
# Their values have to be known when the program is compiled.
CONSTANT_CONTEXTS = {K.STATIC_ASSERT, K.ENUM_DECL, K.TEMPLATE_TYPE_PARAMETER, K.TEMPLATE_NON_TYPE_PARAMETER,
                     K.ALIGNED_ATTR, K.FIELD_DECL, K.PARM_DECL}
# Calls whose arguments may stand in any order, or only make text.
EITHER_WAY = {"max", "min", "swap", "format"}
FUNCTIONS = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.FUNCTION_TEMPLATE, K.CONVERSION_FUNCTION}


@dataclass(frozen=True)
class Site:
    """Bytes [begin, end) of `path`, in `function`; `becomes` takes the place of `was` where the mutant is active."""
    path: str
    begin: int
    end: int
    line: int
    function: str
    kind: str
    was: str
    becomes: str
    swapped: tuple = ()  # the two arguments and what stands between them

    def text(self, number: int) -> str:
        """What the source has instead of `was`: both programs, one of which is chosen when it runs."""
        chosen = f"::seeksim_mutant({number})"
        if self.kind == "dropped":
            return f"if (!{chosen}) {{ {self.was} }}"
        if self.swapped:
            one, two, between = self.swapped
            return f"({chosen} ? {two} : {one}){between}({chosen} ? {one} : {two})"
        if self.kind == "condition":
            return f"({chosen} ? {self.becomes} : bool({self.was}))"
        return f"({chosen} ? ({self.becomes}) : ({self.was}))"


def _unwrapped(cursor):
    while cursor.kind in WRAPPERS:
        children = list(cursor.get_children())
        if len(children) != 1:
            return cursor
        cursor = children[0]
    return cursor


def _makes_text(function) -> bool:
    """Whether all that a function gives is text for people: no sweep can judge its words."""
    return "basic_string" in function.result_type.get_canonical().spelling


class _Finder:
    def __init__(self, source: bytes, path: str):
        self.source, self.path, self.sites = source, path, []

    def text(self, cursor) -> str:
        return self.source[cursor.extent.start.offset:cursor.extent.end.offset].decode()

    def add(self, cursor, function, kind, becomes, end=None, swapped=()):
        begin = cursor.extent.start.offset
        end = end or cursor.extent.end.offset
        self.sites.append(Site(self.path, begin, end, cursor.extent.start.line, function, kind,
                               self.source[begin:end].decode(), becomes, swapped))

    def binary(self, cursor, function):
        left, right = list(cursor.get_children())[:2]
        sign = self.source[left.extent.end.offset:right.extent.start.offset].decode().strip()
        a, b = self.text(left), self.text(right)
        if sign in COMPARISONS:
            self.add(cursor, function, "comparison", f"{a} {COMPARISONS[sign]} {b}")
        elif sign in ("&&", "||"):
            self.add(cursor, function, "logic", f"({a}) {'||' if sign == '&&' else '&&'} ({b})")
        elif sign in ARITHMETIC and all(c.type.get_canonical().kind in NUMBERS for c in (left, right)):
            self.add(cursor, function, "arithmetic", f"{a} {ARITHMETIC[sign]} {b}")

    def call(self, cursor, function):
        if cursor.spelling in EITHER_WAY:
            return
        arguments = list(cursor.get_arguments())
        for one, two in zip(arguments, arguments[1:]):
            a, b = self.text(one), self.text(two)
            if one.type.get_canonical().spelling != two.type.get_canonical().spelling or a == b or not a or not b:
                continue
            if one.type.get_canonical().kind not in NUMBERS or one.extent.end.offset > two.extent.start.offset:
                continue
            between = self.source[one.extent.end.offset:two.extent.start.offset].decode()
            self.add(one, function, "swapped", b + between + a, two.extent.end.offset, (a, b, between))

    def statement(self, cursor, function):
        inner = _unwrapped(cursor)
        if inner.kind not in (K.CALL_EXPR, K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.UNARY_OPERATOR):
            return
        end = self.source.find(b";", cursor.extent.end.offset)
        if end >= 0 and not self.source[cursor.extent.end.offset:end].strip():
            self.add(cursor, function, "dropped", "", end + 1)

    def visit(self, cursor, function):
        kind = cursor.kind
        if kind in CONSTANT_CONTEXTS:
            return
        if kind in FUNCTIONS:
            head = self.source[cursor.extent.start.offset:cursor.extent.end.offset].split(b"{")[0]
            if re.search(rb"\bconste(xpr|val)\b", head) or _makes_text(cursor):
                return
            function = cursor.spelling
        if kind == K.VAR_DECL and re.search(r"\bconst(expr|init)\b|\bstatic\b", self.text(cursor).split("=")[0]):
            return
        children = list(cursor.get_children())
        if function:
            if kind in (K.BINARY_OPERATOR, K.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
                self.binary(cursor, function)
            elif kind == K.CALL_EXPR:
                self.call(cursor, function)
            elif kind == K.INTEGER_LITERAL and re.fullmatch(r"\d+", self.text(cursor)):
                self.add(cursor, function, "constant", str(int(self.text(cursor)) + 1))
            elif kind == K.CXX_BOOL_LITERAL_EXPR and self.text(cursor) in ("true", "false"):
                self.add(cursor, function, "boolean", "false" if self.text(cursor) == "true" else "true")
            elif kind == K.COMPOUND_STMT:
                for child in children:
                    self.statement(child, function)
            elif kind == K.IF_STMT:
                if self.text(cursor).startswith("if constexpr"):
                    children = children[1:]
                elif children and children[0].kind.is_expression() and children[0].kind != K.BINARY_OPERATOR:
                    self.add(children[0], function, "condition", f"!({self.text(children[0])})")
            elif kind == K.CASE_STMT:
                children = children[1:]
        for child in children:
            self.visit(child, function)


def compile_arguments(build: pathlib.Path) -> dict:
    """Source -> the arguments that matter to a parser, out of <build>/compile_commands.json."""
    arguments = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        words = shlex.split(entry["command"])
        arguments[entry["file"]] = [w for w in words if re.match(r"-(I|D|std=)", w)] + [
            w for i, w in enumerate(words) for w in words[i:i + 2] if words[i] == "-isystem"]
    return arguments


def sites_of(path: str, root: pathlib.Path, arguments: list, builtin: str) -> list:
    """All sites of the source `path` below `root`. Throws ValueError where clang does not understand it."""
    unit = cindex.Index.create().parse(str(root / path), args=["-xc++", *arguments, "-isystem", builtin])
    errors = [d.spelling for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
    if errors:
        raise ValueError(f"{path}: {errors[0]}")
    finder = _Finder((root / path).read_bytes(), path)
    for cursor in unit.cursor.get_children():
        if cursor.location.file and cursor.location.file.name == str(root / path):
            finder.visit(cursor, "")
    return finder.sites
