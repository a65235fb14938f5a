"""Random streams of one seed are independent and stable across releases."""

from __future__ import annotations

from eagerly.seeding import Stream, seed_word


def test_streams_and_keys_have_different_seeds() -> None:
    words = {
        seed_word(seed, stream, key) for seed in range(3) for stream in Stream for key in (0, 1)
    }
    assert len(words) == 3 * len(Stream) * 2


def test_seeds_are_stable_across_releases() -> None:
    assert seed_word(0, Stream.ACTOR) == 3757552657
    assert seed_word(7, Stream.EPISODES, 2, 11) == 3811114950
