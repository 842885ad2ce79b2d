# Runs an answer and its tests, {"answer", "tests"} at its input, and ends with 0 where the tests came to their end, with
# 3 where the answer did what honest ones do not, else with 1. The answer runs in another process than the tests: what
# these call of it is asked for by messages of JSON, in which plain values go as such, by exact type, and everything else
# as a handle. So an answer reaches neither the tests' interpreter nor its memory, and what it can say are values.
import builtins, collections, ctypes, datetime, decimal, fractions, io, json, operator, os, random, signal, socket, sys, types

PLAIN = (type(None), bool, int, float, str)
BUILT = {id(v): n for n, v in vars(builtins).items() if callable(v)}
MADE = {"Decimal": decimal.Decimal, "Fraction": fractions.Fraction, "date": datetime.date, "datetime": datetime.datetime,
        "timedelta": datetime.timedelta, "deque": collections.deque, "Counter": collections.Counter,
        "OrderedDict": collections.OrderedDict, "defaultdict": collections.defaultdict,
        "range": range, "complex": complex, "slice": slice}
NAMES = {v: k for k, v in MADE.items()}
BINARY = ("add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift").split()
OPS = {n: getattr(operator, n) for n in BINARY + "eq ne lt le gt ge getitem setitem delitem contains neg pos abs "
       "invert index iadd isub imul".split()}
OPS.update(call=lambda o, *a, **k: o(*a, **k), getattr=getattr, setattr=setattr, delattr=delattr, len=len, iter=iter,
           next=next, str=str, repr=repr, hash=hash, bool=bool, int=int, float=float, complex=complex, format=format,
           round=round, reversed=reversed, dir=dir, isinstance=lambda c, x: isinstance(x, c),
           issubclass=lambda c, x: issubclass(x, c), enter=lambda o: type(o).__enter__(o),
           exit=lambda o, *a: type(o).__exit__(o, *a), divmod=divmod, class_of=type, run=lambda o: __import__("asyncio").run(o))
HIDDEN = ("gi_", "cr_", "ag_", "f_", "tb_", "co_", "func_")  # attributes that lead to frames
SHOWN = ("__name__", "__qualname__", "__doc__", "__module__", "__dict__", "__annotations__", "__wrapped__")
SHARED = 256  # containers whose changes both sides see, the last ones that went over


class Ended(BaseException):
    pass


class Cheat(BaseException):
    pass


class Peer:
    """One end: what it owns has handles, what the other owns are proxies."""

    def __init__(self, sock, trusted):
        self.sock, self.trusted, self.file = sock, trusted, sock.makefile("rb")
        self.owned, self.handles, self.proxies, self.mirrors, self.homes = {}, {}, {}, {}, {}
        self.shared, self.keys, self.next = collections.OrderedDict(), {}, 0
        self.deep = 0

    # values ----------------------------------------------------------------------------------------------------------
    def share(self, x, key=None):
        if key is None:
            key = self.keys.get(id(x))
            if key is None:
                self.next += 1
                key = ("T" if self.trusted else "A") + str(self.next)
        self.shared[key] = [x, None]
        self.shared.move_to_end(key)
        self.keys[id(x)] = key
        while len(self.shared) > SHARED:
            _, (old, _) = self.shared.popitem(last=False)
            self.keys.pop(id(old), None)
        return key

    def items(self, x):
        if type(x) is dict:
            return [[self.pack(k), self.pack(v)] for k, v in x.items()]
        if type(x) is bytearray:
            return x.hex()
        return [self.pack(v) for v in x]

    def handle(self, x):
        h = self.handles.get(id(x))
        if h is None:
            h = self.handles[id(x)] = len(self.owned) + 1
            self.owned[h] = x
        return h

    def pack(self, x):
        t = type(x)
        if t in PLAIN:
            return x
        if t in (list, dict, set, bytearray):
            known = id(x) in self.keys and self.keys[id(x)] in self.shared
            key = self.share(x)
            return ["c", key] if known and self.shared[key][1] else ["c", key, t.__name__, self.items(x)]
        if t in (tuple, frozenset):
            return [t.__name__, [self.pack(v) for v in x]]
        if t is bytes:
            return ["bytes", x.hex()]
        if t is Proxy:
            return ["home", object.__getattribute__(x, "_lf_h")]
        if t in NAMES:
            return ["made", NAMES[t], self.parts(x)]
        if id(x) in BUILT and getattr(builtins, BUILT[id(x)], None) is x:
            return ["built", BUILT[id(x)]]
        if t is types.ModuleType or t.__name__ == "module":
            return ["module", x.__name__]
        if isinstance(x, type) and issubclass(x, BaseException):
            return self.error_class(x)
        if t.__module__ == "numpy" and hasattr(x, "tolist") and x.dtype.kind in "biufcUS":
            return ["array", x.dtype.str, list(x.shape), self.pack(x.ravel().tolist())]
        return ["object", self.handle(x), t.__name__, callable(x), isinstance(x, type)]

    def parts(self, x):
        t = type(x)
        if t is decimal.Decimal:
            return [str(x)]
        if t is complex:
            return [x.real, x.imag]
        if t is fractions.Fraction:
            return [x.numerator, x.denominator]
        if t in (range, slice):
            return [self.pack(v) for v in (x.start, x.stop, x.step)]
        if t is datetime.timedelta:
            return [x.days, x.seconds, x.microseconds]
        if t is datetime.datetime:
            return [x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond]
        if t is datetime.date:
            return [x.year, x.month, x.day]
        if t is collections.deque:
            return [["list", [self.pack(v) for v in x]], x.maxlen]
        items = [["list", [["tuple", [self.pack(k), self.pack(v)]] for k, v in x.items()]]]
        return [self.pack(x.default_factory)] + items if t is collections.defaultdict else items

    def unpack(self, x):
        if type(x) in PLAIN:
            return x
        kind = x[0]
        if kind == "c":
            return self.unpack_shared(x)
        if kind in ("tuple", "frozenset", "list"):
            return {"tuple": tuple, "frozenset": frozenset, "list": list}[kind](self.unpack(v) for v in x[1])
        if kind == "bytes":
            return bytes.fromhex(x[1])
        if kind == "home":
            return self.owned[x[1]]
        if kind == "made":
            parts = [self.unpack(v) for v in x[2]]
            if x[1] in ("Counter", "OrderedDict"):
                return MADE[x[1]](dict(parts[0]))
            return MADE[x[1]](*parts)  # by a constructor that makes a value and nothing else
        if kind == "built":
            return getattr(builtins, x[1])
        if kind == "module":
            if x[1].split(".")[0] not in sys.stdlib_module_names and x[1].split(".")[0] not in ("numpy", "pytest"):
                raise NameError(x[1])
            return __import__(x[1], fromlist=["*"])
        if kind == "error":
            return self.unpack_error(x)
        if kind == "array":
            import numpy
            return numpy.array(self.unpack(x[3]), dtype=x[1]).reshape(x[2])[()]
        if kind == "object":
            p = self.proxies.get(x[1])
            if p is None:
                p = self.proxies[x[1]] = Proxy(self, x[1], x[2], x[4])
            return self.awaits(p) if x[2] == "coroutine" and self.trusted else p
        raise Cheat("a value of no kind")

    def awaits(self, p):
        async def coroutine():  # the answer runs its own, in a loop of its own
            return self.ask("run", p)
        return coroutine()

    def unpack_shared(self, x):
        key = x[1]
        if len(x) == 2:
            self.shared.move_to_end(key)
            return self.shared[key][0]
        made = self.shared[key][0] if key in self.shared else {"list": list, "dict": dict, "set": set,
                                                               "bytearray": bytearray}[x[2]]()
        self.share(made, key)
        self.fill(made, x[3])
        if key in self.shared:
            self.shared[key][1] = self.flat(made)
        return made

    def refill(self, pair, items):
        self.fill(pair[0], items)
        pair[1] = self.flat(pair[0])

    def fill(self, made, items):
        if type(made) is dict:
            new = [(self.unpack(k), self.unpack(v)) for k, v in items]
            made.clear()
            made.update(new)
        elif type(made) is bytearray:
            made[:] = bytes.fromhex(items)
        elif type(made) is set:
            new = [self.unpack(v) for v in items]
            made.clear()
            made.update(new)
        else:
            made[:] = [self.unpack(v) for v in items]

    def error_class(self, c):
        home = self.homes.get(id(c))
        if home is not None:
            return ["error", "home", home]
        if getattr(builtins, c.__name__, None) is c:
            return ["built", c.__name__]
        h = self.handle(c)
        return ["error", "class", h, c.__name__, [self.error_class(b) for b in c.__bases__
                                                   if isinstance(b, type) and issubclass(b, BaseException)]]

    def unpack_error(self, x):
        if x[1] == "home":
            return self.owned[x[2]]
        made = self.mirrors.get(x[2])
        if made is None:
            bases = tuple(self.unpack(b) for b in x[4]) or (Exception,)
            made = self.mirrors[x[2]] = type(x[3], bases, {})
            self.homes[id(made)] = x[2]
        return made

    # messages --------------------------------------------------------------------------------------------------------
    def changes(self):
        """What has changed in the containers that both sides have. It goes over before what a message has of new ones."""
        out = []
        for key in list(self.shared):
            if key in self.shared:
                x, was = self.shared[key]
                now = self.flat(x)
                if now != was:
                    self.shared[key][1] = now
                    out.append([key, self.items(x)])
        return out

    def sent(self):
        for pair in self.shared.values():
            if pair[1] is None:
                pair[1] = self.flat(pair[0])

    def flat(self, x):
        return json.dumps([self.pack_flat(x)])

    def pack_flat(self, x):
        if len(x) > 10000:
            return len(x)
        flat = (lambda v: v if type(v) in PLAIN else id(v))
        if type(x) is dict:
            return [[flat(k), flat(v)] for k, v in x.items()]
        if type(x) is bytearray:
            return x.hex()
        return [flat(v) for v in x]

    def send(self, m):
        self.sent()
        self.sock.sendall(json.dumps(m).encode() + b"\n")

    def hear(self):
        line = self.file.readline()
        if not line:
            raise Ended()
        m = json.loads(line)
        for key, items in m.get("changed", []):
            if key in self.shared:
                self.refill(self.shared[key], items)
        return m

    def ask(self, op, target, *args, **kw):
        changed = self.changes()
        self.send({"changed": changed, "op": op, "on": self.pack(target), "args": [self.pack(a) for a in args],
                   "kw": {k: self.pack(v) for k, v in kw.items()}, "out": taken()})
        while True:
            m = self.hear()
            if m.get("out"):
                sys.stdout.write(m["out"])
            if "op" in m:
                self.answer(m)
            elif "raised" in m:
                raise self.raised(m["raised"])
            else:
                return self.unpack(m["value"])

    def raised(self, x):
        cls, args, held = self.unpack(x[0]), [self.unpack(a) for a in x[1]], x[2]
        try:
            e = cls(*args)
        except Exception:
            e = cls.__new__(cls)
            e.args = tuple(args)
        for k, v in held:
            if not k.startswith("_"):
                try:
                    setattr(e, k, self.unpack(v))
                except Exception:
                    pass
        return e

    def answer(self, m):
        self.deep += 1
        changed = None
        try:
            value = self.do(m)
            changed = self.changes()
            reply = {"value": self.pack(value)}
        except (Ended, Cheat):
            raise
        except BaseException as e:
            if isinstance(e, RecursionError):
                e = RecursionError("maximum recursion depth exceeded")
            changed = self.changes() if changed is None else changed
            reply = {"raised": [self.error_class(type(e)), [self.pack(a) for a in e.args],
                                [[k, self.pack(v)] for k, v in list(getattr(e, "__dict__", {}).items())]]}
        finally:
            self.deep -= 1
        reply["out"], reply["changed"] = taken(), changed
        self.send(reply)

    def do(self, m):
        op, on = m["op"], self.unpack(m["on"])
        args, kw = [self.unpack(a) for a in m["args"]], {k: self.unpack(v) for k, v in m["kw"].items()}
        if op == "special":
            return self.special(on, *args)
        if self.trusted:
            self.allow(op, on, args)
        return OPS[op](on, *args, **kw)

    def allow(self, op, on, args):
        """What an answer may do with what the tests have handed it."""
        if op in ("getattr", "setattr", "delattr"):
            name = args[0]
            if op == "getattr" and name in ("__annotate__", "__type_params__"):
                raise AttributeError(name)  # functools.wraps looks for them
            if type(name) is not str or name.startswith("_") and name not in SHOWN or name.startswith(HIDDEN):
                raise Cheat("it asks for " + str(name))
            if op != "getattr" and (isinstance(on, (type, types.FunctionType, types.ModuleType)) or
                                    type(on).__module__ != "__main__"):
                raise Cheat("it sets " + name)
        elif op in ("class_of", "run"):
            raise Cheat("it asks for " + op)

    def special(self, what, *args):
        if what == "input":
            return builtins.input(*args)
        if what in ("readline", "read"):
            return getattr(sys.stdin, what)(*args)
        if what == "names" and not self.trusted:
            return [k for k in self.module.__dict__ if not k.startswith("__")]
        if what == "name" and not self.trusted:
            return self.module.__dict__[args[0]]
        if what == "load" and not self.trusted:
            exec(compile(args[0], "answer", "exec"), self.module.__dict__)
            return None
        raise Cheat("it asks for " + str(what))


class Proxy:
    """What the other side has. Tests' comparisons with plain values are not left to an answer's own operators."""
    __slots__ = ("_lf_p", "_lf_h", "_lf_n", "_lf_t", "_lf_own")

    def __init__(self, peer, handle, name, is_type):
        put = object.__setattr__
        put(self, "_lf_p", peer), put(self, "_lf_h", handle), put(self, "_lf_n", name), put(self, "_lf_t", is_type)
        put(self, "_lf_own", False)  # made by a class that the tests have called

    def __getattribute__(self, name):
        get = object.__getattribute__
        if name in ("_lf_p", "_lf_h", "_lf_n", "_lf_t", "_lf_own"):
            return get(self, name)
        if name == "__class__":
            return Proxy
        return get(self, "_lf_p").ask("getattr", self, name)

    def __setattr__(self, name, v):
        get(self, "_lf_p").ask("setattr", self, name, v)

    def __delattr__(self, name):
        get(self, "_lf_p").ask("delattr", self, name)

    def __call__(self, *a, **k):
        x = get(self, "_lf_p").ask("call", self, *a, **k)
        if type(x) is Proxy and get(self, "_lf_t"):
            object.__setattr__(x, "_lf_own", True)
        return x

    def __instancecheck__(self, x):
        return type(x) is Proxy and get(self, "_lf_p").ask("isinstance", self, x)

    def __subclasscheck__(self, x):
        return type(x) is Proxy and get(self, "_lf_p").ask("issubclass", self, x)

    def __eq__(self, other):
        return compared(self, "eq", other)

    def __ne__(self, other):
        return not compared(self, "eq", other)

    def __lt__(self, other):
        return compared(self, "lt", other)

    def __le__(self, other):
        return compared(self, "le", other)

    def __gt__(self, other):
        return compared(self, "gt", other)

    def __ge__(self, other):
        return compared(self, "ge", other)

    def __hash__(self):
        return get(self, "_lf_p").ask("hash", self)

    def __iter__(self):
        it = get(self, "_lf_p").ask("iter", self)
        return it if type(it) is Proxy else iter(it)

    def __bool__(self):
        return truth(get(self, "_lf_p").ask("bool", self))

    def __contains__(self, x):
        return truth(get(self, "_lf_p").ask("contains", self, x))

    def __exit__(self, kind, e, trace):
        return get(self, "_lf_p").ask("exit", self, kind, e if type(e) is Proxy else None, None)

    def __round__(self, *n):
        return get(self, "_lf_p").ask("round", self, *n)

    def __format__(self, spec):
        return get(self, "_lf_p").ask("format", self, spec)


get = object.__getattribute__


def truth(x):
    if type(x) is not bool:
        raise Cheat("a truth that is none")
    return x


def forwards(op, reverse=False):
    if reverse:
        return lambda self, x: reflected(self, op, x)
    return lambda self, *a: get(self, "_lf_p").ask(op, self, *a)


def reflected(self, op, x):
    return get(self, "_lf_p").ask("call", get(self, "_lf_p").ask("getattr", self, "__r" + op.rstrip("_") + "__"), x)


for _name in "len next str repr int float complex index neg pos abs invert getitem setitem delitem reversed dir enter".split():
    setattr(Proxy, "__%s__" % _name, forwards(_name))
for _name in BINARY:
    setattr(Proxy, "__%s__" % _name.rstrip("_"), forwards(_name))
    setattr(Proxy, "__r%s__" % _name.rstrip("_"), forwards(_name, True))

INVERSE = {"lt": -1, "le": -1, "gt": 1, "ge": 1}


def compared(p, op, other):
    """Compares what an answer has. Two of its own it compares itself. A plain value it is asked about only where a class
    that the tests called has made the object, and among others that are not equal: one that equals them all cheats."""
    peer = get(p, "_lf_p")
    if not peer.trusted or type(other) is Proxy:
        if op == "eq" and p is other:
            return True
        return truth(peer.ask(op, p, other))
    if not get(p, "_lf_own"):
        if op == "eq":
            return False
        raise TypeError("what the answer gives is no value that can be compared with %r" % (other,))
    rng = random.SystemRandom()
    asked = [(other, None)] + [(d, False) for d in decoys(other, op, rng)]
    rng.shuffle(asked)
    out = False
    for value, want in asked:
        said = truth(peer.ask(op, p, value))
        if want is None:
            out = said
        elif said:
            raise Cheat("it equals what it is not")
    return out


def decoys(v, op, rng):
    if op != "eq":
        if type(v) not in (int, float):
            return []
        return [INVERSE[op] * rng.randrange(10**12, 10**15) for _ in range(3)]
    out = []
    for _ in range(7):
        n = rng.randrange(1, 50)
        if type(v) in (int, float, complex):
            out.append(v + n)
        elif type(v) is bool:
            out.append("%d" % n)
        elif type(v) is str:
            out.append(v[:-1] + chr(97 + n % 26) + chr(97 + n % 7) if n % 2 else v + chr(97 + n % 26))
        elif type(v) in (list, tuple):
            out.append(v + type(v)([n]) if n % 2 or not v else type(v)(list(v[:-1]) + [n + 1000]))
        elif type(v) is dict:
            out.append({**v, n: n})
        elif type(v) in (set, frozenset):
            out.append(v | {"%d" % n})
        else:
            out.append(n)
    return [d for d in out if d != v]


written = []


def taken():
    out = "".join(written)
    written.clear()
    return out


class Output(io.TextIOBase):
    def __init__(self, peer):
        self.peer = peer

    def write(self, text):
        if type(text) is not str:
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        written.append(text)
        return len(text)

    def writable(self):
        return True


class Input(io.TextIOBase):
    def __init__(self, peer):
        self.peer = peer

    def readline(self, *n):
        return self.peer.ask("special", "readline", *n)

    def read(self, *n):
        return self.peer.ask("special", "read", *n)

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line


def serve(sock):
    """The answer's process."""
    peer = Peer(sock, False)
    peer.module = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.stdout, sys.stdin = Output(peer), Input(peer)
    sys.__stdout__ = sys.stdout
    builtins.input = lambda *prompt: peer.ask("special", "input", *prompt)
    while True:
        peer.answer(peer.hear())


class Names(dict):
    """The tests' names: their own, and behind them the answer's."""

    def __init__(self, peer, used):
        super().__init__(__name__="__main__", __builtins__=builtins)
        self.peer, has = peer, set(peer.ask("special", "names"))
        own = {n for n in used if n in has and not hasattr(builtins, n)}
        # A name of Python's own is the answer's where the tests ask for nothing else of it.
        self.has = {n for n in has if not hasattr(builtins, n) or not own}
        self.seen = {}

    def __missing__(self, name):
        if name not in self.has and hasattr(builtins, name):
            raise KeyError(name)
        try:
            return self.peer.ask("special", "name", name)
        except KeyError:
            raise KeyError(name) from None


def used(code):
    out = set(code.co_names)
    for c in code.co_consts:
        if type(c) is types.CodeType:
            out |= used(c)
    return out


def judge(peer, asked):
    code = compile(asked["tests"], "tests", "exec")
    peer.ask("special", "load", asked["answer"])
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    del module
    exec(code, Names(peer, used(code)))


def main():
    # Nobody of this user looks into this process, nor into that of the answer, which has it from here.
    if ctypes.CDLL(None, use_errno=True).prctl(4, 0, 0, 0, 0) != 0:  # PR_SET_DUMPABLE
        sys.exit("prctl: what is tested cannot be hidden from answers")
    here, there = socket.socketpair()
    null = os.open(os.devnull, os.O_RDWR)
    pid = os.fork()
    if pid == 0:  # before the tests are read, so that its memory has never had them
        here.close()
        for f in range(3):
            os.dup2(null, f)
        try:
            serve(there)
        finally:
            os._exit(1)
    there.close()
    asked = json.load(sys.stdin)
    os.dup2(null, 0)
    sys.stdin, sys.stdout = io.StringIO(), io.StringIO()
    try:
        judge(Peer(here, True), asked)
        how = 0
    except (Cheat, Ended, OSError, json.JSONDecodeError, SystemExit) as e:
        how = 1 if isinstance(e, OSError) and not isinstance(e, (BrokenPipeError, ConnectionResetError)) else 3
        if isinstance(e, Ended) and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL:
            how = 1  # it had too much memory
    except BaseException as e:
        sys.stderr.write("%s: %s\n" % (type(e).__name__, e))
        how = 1
    sys.stderr.flush()
    os._exit(how)


main()
