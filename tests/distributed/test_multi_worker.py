import numpy as np
import pytest

from app.distributed.multi_worker import Agreement, gather_bytes


def run_together(shares, epochs):
    """The calls of processes in step, by process, until all are at their end."""
    told = [False]
    agreements = [Agreement(lambda: told[0]) for _ in shares]
    running = [
        agreement.batches(iter(share), epochs, "empty")
        for agreement, share in zip(agreements, shares, strict=True)
    ]
    made = []
    while True:
        calls = [next(batches, None) for batches in running]
        if None in calls:
            assert calls == [None] * len(shares), "some wait for others for ever"
            return list(zip(*made, strict=True))
        made.append(calls)
        told[0] = any(agreement.has_more for agreement in agreements)


@pytest.mark.parametrize(
    "lengths",
    [[(3, 3), (3, 3)], [(1, 4), (3, 2)], [(0, 2), (2, 0), (1, 1)], [(5, 1), (0, 0)]],
)
def test_all_make_as_many_calls_of_an_epoch_as_the_longest_share_has(lengths):
    shares = [
        [(epoch, f"{epoch}.{n}") for epoch, count in enumerate(counts) for n in range(count)]
        for counts in lengths
    ]
    calls = run_together(shares, range(2))
    for share, made in zip(shares, calls, strict=True):
        assert [call for call in made if call[1] != "empty"] == share
        for epoch in range(2):
            most = max(counts[epoch] for counts in lengths)
            assert sum(call[0] == epoch for call in made) == max(most, 1)


def test_one_process_makes_its_own_calls_only():
    share = [(4, "a"), (4, "b"), (5, "c")]
    assert run_together([share], range(4, 6)) == [tuple(share)]


def test_no_epochs_are_no_calls():
    assert run_together([[], []], range(0)) == []


@pytest.mark.parametrize("replicas", [1, 2])
def test_messages_of_any_length_come_from_every_process(replicas):
    messages = [b"", b"\0one\0", b"longer than eight bytes"]
    sent = [len(message) for message in messages]

    def gather(mine_N):
        """Each process has as many replicas, all with its numbers."""
        if len(mine_N) == 1:
            numbers = [[size] for size in sent]
        else:
            padded = [message.ljust(24, b"\0") for message in messages]
            assert padded[1] == mine_N.numpy().tobytes()
            numbers = [np.frombuffer(message, np.int64) for message in padded]
        return np.repeat(np.array(numbers, np.int64), replicas, axis=0)

    assert gather_bytes(messages[1], gather, 3) == messages


def test_empty_messages():
    def gather(mine_N):
        return np.repeat(mine_N.numpy()[np.newaxis], 2, axis=0)

    assert gather_bytes(b"", gather, 2) == [b"", b""]
