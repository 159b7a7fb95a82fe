"""Events as the tests of this folder write them."""

from app.profiling.profiles import Event


def event(name, start, length, thread="python", process="/host:CPU", /, **args):
    return Event(process, thread, name, float(start), float(length), args)


def operation(long_name, start, length, thread="tf_Compute/1", **more):
    return event(long_name.rpartition(":")[2], start, length, thread, long_name=long_name, **more)


def iterator(path, start, length, thread="python", *, id, parent=None, name="", **args):
    """An iterator's GetNext: `path` is that below the root, such as Root::Prefetch."""
    kind = path.rpartition("::")[2].partition("[")[0]
    if parent is not None:
        args["parent_id"] = str(parent)
    args |= {"long_name": f"Iterator::{path}", "name": name or f"{kind}Dataset:3"}
    return event(f"Iterator::{kind}", start, length, thread, id=str(id), **args)
