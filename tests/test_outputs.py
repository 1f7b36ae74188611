"""Files that are written in Python: whole or not at all, through links, into pipes, where nothing lies beside."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import NoReturn

import pytest
from remat._outputs import write_whole


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    if there:
        target.write_text("before")
    write_whole(link, b"whole")
    assert link.is_symlink()
    assert target.read_bytes() == b"whole"
    assert names(tmp_path) == ["link", "target"]


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"whole")
    reader.join()
    assert read == [b"whole"]
    assert pipe.is_fifo()


def test_a_file_called_like_one_not_yet_whole_stays(tmp_path: Path) -> None:
    (tmp_path / "file.partial").write_text("of others")
    write_whole(tmp_path / "file", b"whole")
    assert (tmp_path / "file.partial").read_text() == "of others"
    assert names(tmp_path) == ["file", "file.partial"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EBUSY])
def test_a_file_that_cannot_take_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Where a file is a mount of its own it is written into; where the disk is full the one before stays."""

    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    file = tmp_path / "file"
    file.write_text("before")
    monkeypatch.setattr(os, "replace", fail)
    if number == errno.EBUSY:
        write_whole(file, b"whole")
        assert file.read_text() == "whole"
    else:
        with pytest.raises(OSError, match="No space left"):
            write_whole(file, b"whole")
        assert file.read_text() == "before"
    assert names(tmp_path) == ["file"]


def test_a_name_too_long_for_a_suffix(tmp_path: Path) -> None:
    file = tmp_path / ("n" * 250)
    write_whole(file, b"whole")
    assert file.read_bytes() == b"whole"
    assert names(tmp_path) == [file.name]
