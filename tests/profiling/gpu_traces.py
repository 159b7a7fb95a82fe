"""Profiles as TensorFlow writes them on a GPU (XLA's `cupti_collector.cc`), made without one."""

from pathlib import Path

import tensorflow as tf
from tensorflow.compiler.xla.service import hlo_pb2
from tensorflow.tsl.profiler.protobuf import xplane_pb2

BANDWIDTH = 2 * 10**12  # bytes a second
DIM, IDS = 64, 50
STEPS = 8  # of a call


def program(rows):
    """A loop of steps that gather rows of a table and assign them: its `HloProto`."""
    table = tf.Variable(tf.zeros([rows, DIM]))

    @tf.function(jit_compile=True, autograph=False)
    def train(ids):
        def body(index):
            with tf.name_scope("gather/"):
                found = tf.gather(table, ids)
            with tf.name_scope("update/"):
                table.scatter_update(tf.IndexedSlices(found * 2 + 1, ids))
            return (index + 1,)

        return tf.while_loop(lambda index: index < STEPS, body, [0])

    compiled = train.experimental_get_compiler_ir(tf.zeros([IDS], tf.int32))
    return hlo_pb2.HloProto.FromString(compiled(stage="optimized_hlo_proto_serialized"))


class _Plane:
    """A plane of a profile, and its events and their arguments by name."""

    def __init__(self, space, name):
        self.plane = space.planes.add(name=name)

    def _number(self, names, name):
        """The number of a name; new ones are added."""
        for number, known in names.items():
            if known.name == name:
                return number
        number = len(names) + 1
        names[number].id, names[number].name = number, name
        return number

    def describe(self, owner, **values):
        for name, value in values.items():
            kind = {int: "uint64_value", str: "str_value", bytes: "bytes_value"}[type(value)]
            number = self._number(self.plane.stat_metadata, name)
            owner.stats.add(metadata_id=number, **{kind: value})

    def line(self, name, number):
        return self.plane.lines.add(id=number, name=name, timestamp_ns=10**9)

    def event(self, line, name, start, length, /, **values):
        """An event, from `start` on; microseconds."""
        number = self._number(self.plane.event_metadata, name)
        times = {"offset_ps": round(start * 1e6), "duration_ps": round(length * 1e6)}
        self.describe(line.events.add(metadata_id=number, **times), **values)


def write(folder: Path, hlo, calls=12, length=2.0, gap=0.05, graphs=False):
    """Write the profile of some calls to a folder of TensorBoard, and return its folder.

    Args:
        folder: The folder.
        hlo: The program, with one loop. Its kernels run one after the other.
        calls: The calls; each makes `STEPS` steps.
        length: Microseconds of a kernel.
        gap: Microseconds between two kernels.
        graphs: Whether each iteration is one CUDA graph. By default it is none, as XLA makes none
            while a profile is recorded.
    """
    space, module = xplane_pb2.XSpace(), hlo.hlo_module
    gpu = _Plane(space, "/device:GPU:0")
    host, programs = _Plane(space, "/host:CPU"), _Plane(space, "/host:metadata")
    gpu.describe(gpu.plane, device_vendor="Nvidia", memory_bandwidth=BANDWIDTH, core_count=132)
    about = programs.plane.event_metadata[1]
    about.id, about.name = 1, f"{module.name}({module.id})"
    programs.describe(about, **{"Hlo Proto": hlo.SerializeToString()})
    stream, python = gpu.line("Stream #14(Kernel)", 14), host.line("python", 77)
    bodies = {body.id: body for body in module.computations}
    (loop,) = (i for body in bodies.values() for i in body.instructions if i.opcode == "while")
    of_step = {"hlo_module": module.name, "program_id": module.id, "tf_op": "train:XlaLaunch"}
    now, number = 100.0, 0
    for call in range(calls):
        begin = launched = now
        for _ in range(STEPS):
            for kernel in bodies[loop.called_computation_ids[0]].instructions:
                if kernel.opcode not in ("fusion", "copy", "scatter", "gather"):
                    continue
                number += 1
                if graphs:  # the graph's instruction, and no source of a kernel
                    own = {"hlo_op": "command_buffer", "cuda_graph_id": 5}
                else:
                    own = {"hlo_op": kernel.name, "name": kernel.metadata.op_name}
                    host.event(python, "cuLaunchKernelEx", launched, 1.0, correlation_id=number)
                launched += 1.1
                name = kernel.name.replace(".", "_").replace("-", "_")
                gpu.event(stream, name, now + 5, length, correlation_id=number, **own, **of_step)
                now += length + gap
            if graphs:
                host.event(python, "cuGraphLaunch (CudaGraph:5)", launched, 1.0, cuda_graph_id=5)
        host.event(python, "GpuExecutable::ExecuteThunks", begin, now - begin - 0.5)
        host.event(python, "train", begin, now - begin, step_num=call, _r=1)
    profile = folder / "plugins/profile/2026_01_01_00_00_00"
    profile.mkdir(parents=True)
    (profile / "host.xplane.pb").write_bytes(space.SerializeToString())
    return profile
