# Runs an answer and its tests, {"answer", "tests"} at its input, and ends with 0 where the tests ended. They run in a
# process that cannot end with a wrong word: it shows that the tests have come to their end by a token that this one
# holds, and that it reads from a pipe behind them alone.
import json, os, sys, types


def child(answer, tests, ask, say, read, write, leave):
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    exec(compile(answer, "answer", "exec"), module.__dict__)
    exec(compile(tests, "tests", "exec"), module.__dict__)
    write(say, read(ask, 64))
    sys.stdout.flush()
    leave(0)


def main():
    asked = json.load(sys.stdin)
    ask, give = os.pipe()
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(give)
        os.close(hear)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        child(asked["answer"], asked["tests"], ask, say, os.read, os.write, os._exit)
    os.close(ask)
    os.close(say)
    token = os.urandom(32)
    os.write(give, token)
    _, status = os.waitpid(pid, 0)
    os.set_blocking(hear, False)
    try:
        heard = os.read(hear, 64)
    except BlockingIOError:
        heard = b""
    os._exit(0 if status == 0 and heard == token else 1)


main()
