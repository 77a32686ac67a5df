"""Small changes of C code, one at a time, for mutate.py: which there are in a file, found by tokens.

Kinds: a relation moves its boundary or turns around (relation), && becomes || and the reverse (and_or), an integer is one
more or less (constant), the result of an expression is one more (offset), a condition is negated (negate), a call whose
result is not used is removed (call), a return in the middle of a function is removed (return).

Left out is what no test of behaviour is meant to notice: code outside functions, assertions, log lines, the texts of errors
and notes, calls that only speed things up or report progress, the growth of buffers, the sizes of declared arrays, which of
two equal values is taken, the last nanosecond of a deadline, what happens out of memory, whether a descriptor or an
id of libhdf5 may be 0, which it never is, locks, whose absence only ThreadSanitizer sees (`make test` runs it), and memory
and ids that the helper program returns, which ends soon."""
import re
from dataclasses import dataclass

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\.)*)
  | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<operator><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""", re.S | re.X | re.M)
RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
CONTROLS = ("if", "for", "while", "switch")
# calls whose arguments are messages
MESSAGES = re.compile(r"(^LOG|^assert|^_Static_assert|_error_set|_error_prefix|_yaml_error|_output_error|io_error|zmq_error|"
                      r"cli_fail|session_fail\w*|^quarantine|_note|^note|refuse|print_note|log_line|log_write|printf)$")
# calls that only say or hint something: removing them changes nothing that counts
HINTS = re.compile(r"^(LOG|assert|trajd_log_write|log_line|trajd_error_prefix|trajd_heartbeat_turn|trajd_heartbeat_wait|"
                   r"trajd_heartbeat_resume|__builtin_prefetch|trajd_clock_fetch_rows_until|trajd_cache_prefetch|madvise|posix_fadvise|"
                   r"pthread_setname_np|nanosleep|pthread_mutex_lock|H5Eclear2|H5[A-Z]close|prctl)$")
BEGINS = ("=", "+=", "(", "[", ",", "?", ":", "return")  # before an expression
CLOSES = re.compile(r"^H5[A-Z]close$")
DEADLINE = re.compile(r"deadline")  # a moment more or less of a wait that is measured by the clock
NO_MEMORY = re.compile(r"no_memory|_MEMORY\b|\bENOMEM\b|no memory|out_of_memory")
ALLOCATIONS = re.compile(r"^([cm]alloc|realloc|aligned_alloc|\w*arena_alloc|allocate)$")
TYPES = re.compile(r"^(const|static|char|struct|enum|unsigned|int|long|bool|double|float|u?int\d+_t|size_t|hid_t|hsize_t)$")
GROWTH = re.compile(r"capacity|grown")
HANDLES = re.compile(r"(^|_)fd$|^(socket|input|output|id|type|space|made|from|to|folder|file)$")  # and what is a hid_t in the file
BLOCK = 60  # tokens that a block has at most which only reports that it is out of memory
NEAR = 9  # tokens on each side that name the place of a change in lists


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    begin: int
    end: int


@dataclass(frozen=True)
class Change:
    file: str
    line: int
    function: str
    kind: str
    begin: int
    end: int
    new: str
    before: str  # the place and its neighbours, with single spaces: how the list of changes without effect names it
    after: str

    def apply(self, source):
        return source[:self.begin] + self.new + source[self.end:]


def tokens_of(source):
    found = (Token(match.lastgroup, match.group(), match.start(), match.end()) for match in TOKEN.finditer(source))
    return [token for token in found if token.kind != "skip"]


def pairs_of(tokens):
    """Returns, for each bracket, the index of the one that closes or opens it."""
    pairs, open_ones = {}, []
    for i, token in enumerate(tokens):
        if token.text in ("(", "[", "{"):
            open_ones.append(i)
        elif token.text in (")", "]", "}") and open_ones:
            pairs[i] = open_ones.pop()
            pairs[pairs[i]] = i
    return pairs


class File:
    """A file's tokens, and the changes that can be made to them."""

    def __init__(self, name, source):
        self.name, self.source = name, source
        self.tokens = tokens_of(source)
        self.pairs = pairs_of(self.tokens)
        self.changes = []
        self.ids = self.names_of_ids()
        for begin, end, function in self.functions():
            self.silent = self.arguments(MESSAGES, begin, end) | self.without_memory(begin, end) | self.closing(begin, end)
            self.allocated = self.arguments(ALLOCATIONS, begin, end)
            for i in range(begin + 1, end):
                if i not in self.silent:
                    self.change_token(i, begin, end, function)

    def text(self, i):
        return self.tokens[i].text if 0 <= i < len(self.tokens) else ""

    def functions(self):
        """Yields the indexes of a body's braces, and the function's name."""
        i = 0
        while i < len(self.tokens):
            if self.text(i) == "{" and i in self.pairs:
                if self.text(i - 1) == ")":
                    yield i, self.pairs[i], self.text(self.pairs[i - 1] - 1)
                i = self.pairs[i]
            i += 1

    def names_of_ids(self):
        """Returns the names of variables and members that are ids of libhdf5."""
        found, is_list = set(), False
        for i, token in enumerate(self.tokens):
            if token.text == "hid_t":
                is_list = True
            elif token.text in (";", ")", "{"):
                is_list = False
            elif is_list and token.kind == "name" and self.text(i - 1) in ("hid_t", ","):
                found.add(token.text)
        return found

    def compares_handle(self, i):
        """Returns whether the operator asks whether a descriptor or an id is there."""
        name = self.text(i - 1)
        return self.text(i) in (">=", "<") and self.text(i + 1) == "0" and (name in self.ids or bool(HANDLES.search(name)))

    def chooses_larger(self, i):
        """Returns whether the relation chooses the larger or smaller of two values, of which equal ones are the same:
        `a < b ? a : b`, `if (a < b) a = b;`."""
        stop = i + 1
        while self.text(stop) not in ("?", ")", ";", ",", "&&", "||", ""):
            stop = self.pairs[stop] + 1 if self.text(stop) in ("(", "[") else stop + 1
        words = [token.text for token in self.tokens[max(0, i - 3 * NEAR):stop + 3 * NEAR]]
        at, end = i - max(0, i - 3 * NEAR), stop - max(0, i - 3 * NEAR)
        right, after = words[at + 1:end], words[end + 1:]
        if not right or self.text(i) in ("==", "!="):
            return False
        for length in range(1, at):
            left, before = words[at - length:at], words[at - length - 1]
            for one, other in ((left, right), (right, left)):
                choice = [*one, ":", *other]
                if self.text(stop) == "?" and before in BEGINS and after[:len(choice)] == choice and after[len(choice)] in (";", ")", ",", "]"):
                    return True
            if self.text(stop) == ")" and before == "(" and after[:length + len(right) + 2] == [*left, "=", *right, ";"]:
                return True
        return False

    def arguments(self, names, begin, end):
        """Returns the tokens that are arguments of calls with such a name."""
        found = set()
        for i in range(begin, end):
            if self.tokens[i].kind == "name" and names.search(self.text(i)) and self.text(i + 1) == "(":
                found.update(range(i + 1, self.pairs[i + 1]))
        return found

    def without_memory(self, begin, end):
        """Returns the tokens of `if (...) ...` where the second part is about memory that ran out, and of statements that
        make buffers larger."""
        found = set()
        for i in range(begin, end):
            if self.text(i) == "if" and self.text(i + 1) == "(":
                last = self.pairs[i + 1]
                stop = self.statement_end(last + 1, end)
                if self.text(stop) == "{" and stop == last + 1:
                    stop = self.pairs[stop]
                if stop - last < BLOCK and NO_MEMORY.search(" ".join(self.text(k) for k in range(last, stop + 1))):
                    found.update(range(i, stop + 1))
            if self.starts_statement(i) and self.tokens[i].kind == "name":
                stop = self.statement_end(i, end)
                words = [self.text(k) for k in range(i, stop)]
                if "=" in words and GROWTH.search(" ".join(words[:words.index("=")])):
                    found.update(range(i, stop + 1))
        return found

    def closing(self, begin, end):
        """Returns the tokens of `if (...) H5Dclose(...);` in the helper program."""
        found = set()
        for i in range(begin, end) if self.name.startswith("daemon/hdf5/") else ():
            last = self.pairs[i + 1] if self.text(i) == "if" and self.text(i + 1) == "(" else end
            if last < end and CLOSES.search(self.text(last + 1)):
                found.update(range(i, self.statement_end(last + 1, end) + 1))
        return found

    def statement_end(self, i, end):
        """Returns the index of the next `;`, or of the `{` of a block if that comes first."""
        while i < end and self.text(i) not in (";", "{"):
            i = self.pairs[i] + 1 if self.text(i) in ("(", "[") else i + 1
        return i

    def starts_statement(self, i):
        before = self.text(i - 1)
        if before == ")":
            return self.text(self.pairs[i - 1] - 1) in CONTROLS
        return before in (";", "{", "}", "else", "do")

    def add(self, kind, function, first, last, new):
        """Adds the change that puts `new` in place of the tokens first to last."""
        begin, end = self.tokens[first].begin, self.tokens[last].end
        left = " ".join(self.text(k) for k in range(max(0, first - NEAR), first))
        right = " ".join(self.text(k) for k in range(last + 1, min(len(self.tokens), last + 1 + NEAR)))
        old = " ".join(self.text(k) for k in range(first, last + 1))
        self.changes.append(Change(self.name, self.source.count("\n", 0, begin) + 1, function, kind, begin, end, new,
                                   f"{left} {old} {right}", f"{left} {new} {right}"))

    def change_token(self, i, begin, end, function):
        token = self.tokens[i]
        if token.kind == "operator" and token.text in RELATIONS:
            if token.text[0] in "<>" and any(DEADLINE.search(self.text(k)) for k in range(i - 3, i + 4)) or self.compares_handle(i) or \
                    self.chooses_larger(i):
                return
            self.add("relation", function, i, i, RELATIONS[token.text])
        elif token.text in ("&&", "||"):
            self.add("and_or", function, i, i, "||" if token.text == "&&" else "&&")
        elif token.kind == "number":
            self.change_constant(i, function)
        elif token.text == "=":
            self.change_value(i, end, function)
        elif token.text == "if" and self.text(i + 1) == "(":
            last = self.pairs[i + 1]
            condition = self.source[self.tokens[i + 1].begin:self.tokens[last].end]
            self.add("negate", function, i + 1, last, f"(!{condition})")
        elif token.text == "return":
            self.remove_return(i, begin, end, function)
        elif token.kind == "name":
            self.remove_call(i, function)

    def is_declared_size(self, i):
        """Returns whether the token is the size of an array in a declaration."""
        begin = i
        while not self.starts_statement(begin):
            begin -= 1
        between = [self.text(k) for k in range(begin, i)]
        opening = max((k for k in range(begin, i) if self.text(k) in ("[", "]", "(", ",")), default=begin)
        return self.text(opening) == "[" and bool(TYPES.match(between[0])) and "=" not in between

    def is_measured(self, i):
        """Returns whether the token is an index whose element is only measured: sizeof list[0]."""
        i -= 1
        while self.text(i) in ("[", "(", ".", "->") or self.tokens[i].kind == "name" and self.text(i) != "sizeof":
            i -= 1
        return self.text(i) == "sizeof"

    def change_constant(self, i, function):
        match = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", self.text(i))
        if not match or self.text(i - 1) == "case" or self.is_declared_size(i) or self.is_measured(i) or self.compares_handle(i - 1):
            return
        number = int(match[1], 16 if match[1][:2].lower() == "0x" else 8 if match[1][:1] == "0" else 10)
        # more memory than needed changes nothing, and one element less of `count + 1` is the sanitizers' business
        needless = {number + 1} | ({0} if self.text(i - 1) == "+" else set()) if i in self.allocated else set()
        if number == 1 and self.is_absent_id(i):
            needless = needless | {2}
        for value in {number + 1, abs(number - 1)} - needless:
            self.add("constant", function, i, i, f"{value}{match[2]}")

    def is_absent_id(self, i):
        """Returns whether -1 stands for no descriptor or id, so that -2 does, too."""
        begin = i
        while self.text(begin) not in ("=", ";", "{", ","):
            begin -= 1
        name = self.text(begin - 1)
        return self.text(i - 1) == "-" and self.text(begin) == "=" and (name in self.ids or bool(HANDLES.search(name)))

    def change_value(self, i, end, function):
        """Adds one to a number that is computed and then assigned. Pointers, results of calls and values that are only
        passed on are left alone, as far as tokens tell."""
        stop = i + 1
        while stop < end and self.text(stop) not in (";", ",", ")", "{", "]", "}"):
            stop = self.pairs[stop] + 1 if self.text(stop) in ("(", "[") else stop + 1
        value = [self.text(k) for k in range(i + 1, stop)]
        is_call = self.text(i + 2) == "(" and self.pairs[i + 2] == stop - 1
        is_pointer = self.text(i - 2) == "*" or re.search("status|deadline", self.text(i - 1)) or i in self.allocated
        is_computed = any(word in ("+", "-", "*", "/", "%", ".", "->", "<<", ">>") for word in value[1:])
        is_truth = any(word in RELATIONS or word in ("?", "!", "&&", "||") for word in value)
        if self.text(stop) in (";", ",") and is_computed and not is_call and not is_pointer and not is_truth and \
                self.text(i + 1) not in ("&", "(", "*"):
            text = self.source[self.tokens[i + 1].begin:self.tokens[stop - 1].end]
            self.add("offset", function, i + 1, stop - 1, f"{text} + 1")

    def remove_return(self, i, begin, end, function):
        stop = self.statement_end(i, end)
        is_last = all(self.text(k) == "}" for k in range(stop + 1, end + 1))
        if self.text(stop) == ";" and not is_last and self.starts_statement(i):
            self.add("return", function, i, stop, ";")

    def remove_call(self, i, function):
        in_helper = self.name.startswith("daemon/hdf5/")
        if not self.starts_statement(i) or self.text(i + 1) != "(" or HINTS.search(self.text(i)) or (in_helper and self.text(i) == "free"):
            return
        last = self.pairs[i + 1]
        if self.text(last + 1) == ";":
            self.add("call", function, i, last + 1, ";")


def changes_of(name, source):
    return File(name, source).changes
