from __future__ import annotations

import collections

import tensorflow as tf

from app.auditing.whole import Finding, Findings, Touch, explained, source_line

Frame = collections.namedtuple("Frame", "filename lineno name")


def finding(kind, size, cause, instead, count=1):
    return Finding("words", (1000, 16), kind, cause, size, count, instead)


def test_a_report_is_aligned_and_names_each_remedy_once():
    findings = Findings(
        [
            finding("Sqrt", 128_000, "Adam 'adam'", "LazyAdam"),
            finding("UnsortedSegmentSum", 3_250_000_000, "Adam 'adam'", "LazyAdam", count=2),
            finding("ReadVariableOp", 1_500_000, "Embedding 'words'", "RowEmbedding"),
        ],
        least_bytes=16 << 20,
    )
    assert str(findings).splitlines() == [
        "4 operations on whole tables, 3.25 GB read and written:",
        "    3.25 GB  2 x  UnsortedSegmentSum  words 1,000 x 16  Adam 'adam'",
        "    1.50 MB  1 x  ReadVariableOp      words 1,000 x 16  Embedding 'words'",
        "  128.00 kB  1 x  Sqrt                words 1,000 x 16  Adam 'adam'",
        "use instead:",
        "  Adam 'adam': LazyAdam",
        "  Embedding 'words': RowEmbedding",
    ]
    assert findings.total == 3_251_628_000


def test_nothing_found_is_false_and_says_so():
    findings = Findings([], least_bytes=16 << 20)
    assert not findings and findings.total == 0
    assert str(findings) == "no operation on a whole table of 16.78 MB or more"


def test_the_source_is_the_innermost_line_that_is_not_foreign():
    stack = [
        Frame("/code/train.py", 9, "main"),
        Frame("/code/model/layers.py", 30, "call"),
        Frame("/lib/keras/ops.py", 5, "take"),
        Frame(tf.__file__, 1, "gather"),
    ]
    assert source_line(stack) == "lib/keras/ops.py:5 take"
    assert source_line(stack, lambda path: "keras" in path) == "code/model/layers.py:30 call"
    assert source_line(stack[2:], lambda path: "keras" in path) == "lib/keras/ops.py:5 take"
    assert source_line(stack[3:]).startswith("TensorFlow")


def test_an_explanation_tells_the_way_by_row():
    v = tf.Variable(tf.ones((4, 2)))
    graph = tf.function(lambda: v.assign_add(tf.sqrt(v))).get_concrete_function().graph
    remedies = {"ReadVariableOp": "tf.gather", "Sqrt": "IndexedSlices", "AssignAdd": "Scatter"}
    for kind, remedy in remedies.items():
        operation = next(o for o in graph.get_operations() if o.type.startswith(kind))
        cause, instead = explained(Touch("v", operation, operation.name))
        assert "auditing/test_findings.py:" in cause and remedy in instead
