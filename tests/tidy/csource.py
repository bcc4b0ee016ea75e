"""C as tidy sees it: comments, strings and directives apart, tokens with lines, functions with their shape.

A reader for well-formed C in the style of this tree, not a compiler: macros are not expanded, directives are set aside, and both
arms of an #if are read. SPDX-License-Identifier: Apache-2.0
"""
import re
from collections import namedtuple

Token = namedtuple("Token", "text line")
Text = namedtuple("Text", "line text")
Function = namedtuple("Function", "name line end params depth body static")

LEXEME = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.M)
TOKEN = re.compile(r'[A-Za-z_]\w*|\d[\w.]*|->|\.\.\.|[-+*/%&|^=!<>]=|\+\+|--|&&|\|\||<<|>>|[^\s\w]')
OPENING, CLOSING = "([{", ")]}"


def blank(text):
    return re.sub(r'[^\n]', ' ', text)


class Source:
    def __init__(self, text):
        self.lines = text.split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()
        self.comments, self.strings, self.directives = [], [], []
        code = LEXEME.sub(lambda m: self._lexeme(text, m), text)
        code = DIRECTIVE.sub(lambda m: self._directive(text, code, m), code)
        self.tokens = []
        for number, line in enumerate(code.split("\n"), 1):
            self.tokens += [Token(m.group(), number) for m in TOKEN.finditer(line)]
        self.functions = list(self._find_functions())

    def _lexeme(self, text, m):
        found, line = m.group(), text.count("\n", 0, m.start()) + 1
        if found[0] == "/":
            self.comments.append(Text(line, found))
            return blank(found)
        if found[0] == '"':
            self.strings.append(Text(line, found[1:-1]))
            return '"' + " " * (len(found) - 2) + '"'
        return "0" + " " * (len(found) - 1)

    def _directive(self, text, code, m):
        line = code.count("\n", 0, m.start()) + 1
        original = text[m.start():m.end()]
        self.directives.append(Text(line, original))
        return blank(m.group())

    def closing(self, i):
        """Index of the token that closes the bracket at i."""
        depth = 0
        for j in range(i, len(self.tokens)):
            text = self.tokens[j].text
            depth += (text in OPENING) - (text in CLOSING)
            if depth == 0:
                return j
        return len(self.tokens) - 1

    def _find_functions(self):
        t, i, first = self.tokens, 0, 0
        while i < len(t):
            text = t[i].text
            if text == ";":
                first = i + 1
            elif text == "(" and i > 0 and re.match(r"[A-Za-z_]", t[i - 1].text):
                close = self.closing(i)
                if close + 1 < len(t) and t[close + 1].text == "{":
                    end = self.closing(close + 1)
                    yield self._function(first, i, close, end)
                    first = i = end + 1
                    continue
                i = close
            elif text == "{":
                i = self.closing(i)
            i += 1

    def _function(self, first, open_, close, end):
        t = self.tokens
        depth, commas = 0, 0
        for token in t[open_:close]:
            depth += (token.text in OPENING) - (token.text in CLOSING)
            commas += token.text == "," and depth == 1
        empty = close == open_ + 1 or (close == open_ + 2 and t[open_ + 1].text == "void")
        body = t[close + 1:end + 1]
        return Function(t[open_ - 1].text, t[open_ - 1].line, t[end].line, 0 if empty else commas + 1, Nesting(body).deepest,
                        body, any(x.text == "static" for x in t[first:open_]))


class Nesting:
    """How deep control statements stand in each other: an `else if` goes on at the level of its `if`, cases at that of their switch."""

    def __init__(self, tokens):
        self.t, self.deepest = tokens, 0
        self.block(0, 0)

    def text(self, i):
        return self.t[i].text if i < len(self.t) else ""

    def skip(self, i):
        depth = 0
        while i < len(self.t):
            depth += (self.text(i) in OPENING) - (self.text(i) in CLOSING)
            i += 1
            if depth == 0:
                break
        return i

    def block(self, i, level):
        i += 1
        while i < len(self.t) and self.text(i) != "}":
            i = self.statement(i, level)
        return i + 1

    def inner(self, i, level):
        self.deepest = max(self.deepest, level)
        return self.block(i, level) if self.text(i) == "{" else self.statement(i, level)

    def statement(self, i, level):
        word = self.text(i)
        if word == "{":
            return self.inner(i, level + 1)
        if word in ("for", "while", "switch"):
            return self.inner(self.skip(i + 1), level + 1)
        if word == "do":
            i = self.inner(i + 1, level + 1)
            return self.plain(i)
        if word == "if":
            i = self.inner(self.skip(i + 1), level + 1)
            if self.text(i) != "else":
                return i
            return self.statement(i + 1, level) if self.text(i + 1) == "if" else self.inner(i + 1, level + 1)
        if word in ("case", "default"):
            while i < len(self.t) and self.text(i) != ":":
                i = self.skip(i)
            return i + 1
        if self.text(i + 1) == ":" and re.match(r"[A-Za-z_]", word):
            return i + 2
        if re.fullmatch(r"[A-Z][A-Z0-9_]+", word) and self.text(i + 1) == "(":
            after = self.skip(i + 1)
            if self.text(after) == "{" or self.text(after) in ("if", "for", "while"):
                return self.inner(after, level + 1)     # a loop by macro
        return self.plain(i)

    def plain(self, i):
        while i < len(self.t) and self.text(i) != ";":
            if self.text(i) == "}":
                return i                                # an X-macro without its semicolon
            i = self.skip(i)
        return i + 1
