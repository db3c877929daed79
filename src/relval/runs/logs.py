"""What a run writes while it learns: CSV files, TensorBoard, Weights & Biases."""

import csv
import importlib.util
import io
import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from relval._names import not_installed


class CsvLog:
    """Rows under the header of the first one, cut back when a run resumes from before them."""

    def __init__(self, path: Path, *, keep: int = 0) -> None:
        """Opens the file, and drops all but its first `keep` bytes."""
        self._file = path.open("a+", encoding="utf-8", newline="")
        self._file.truncate(keep)
        self._file.seek(0)
        self._header = next(csv.reader(self._file), None)
        self._file.seek(0, os.SEEK_END)

    def append(self, row: dict[str, Any]) -> None:
        """Writes a row; all rows have the columns of the first."""
        if self._header is None:
            self._header = list(row)
            self._file.write(_row(self._header))
        if list(row) != self._header:
            raise ValueError(f"the log has the columns {self._header}, got {list(row)}")
        self._file.write(_row(list(row.values())))

    def flush(self) -> int:
        """Brings all rows to the disk, and returns the file's size."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _row(values: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()


class Tracker(Protocol):
    """A place that curves are sent to, beside the files."""

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Sends the metrics of one update."""
        ...

    def close(self) -> None:
        """Ends the connection."""
        ...


class TensorBoard:
    """Curves for TensorBoard, those after a resumed step dropped."""

    def __init__(self, folder: Path, *, resumed_at: int | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge_step = None if resumed_at is None else resumed_at + 1
        self._writer: Any = SummaryWriter(str(folder), purge_step=purge_step)

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Writes each metric as a scalar, all in one event: many cost more than many updates."""
        from tensorboard.compat.proto.summary_pb2 import (  # type: ignore[import-untyped, unused-ignore]
            Summary,
        )

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self._writer.file_writer.add_summary(Summary(value=values), step)

    def close(self) -> None:
        """Flushes and closes."""
        self._writer.close()


def require_wandb() -> None:
    """Refuses to go on without the package, before anything is written."""
    if importlib.util.find_spec("wandb") is None:
        raise ModuleNotFoundError(not_installed("wandb", "wandb"))


class WeightsAndBiases:
    """Curves for Weights & Biases."""

    def __init__(self, folder: Path, config: dict[str, Any]) -> None:
        import wandb  # type: ignore[import-not-found, unused-ignore]

        name = folder / "wandb-id.txt"  # one for each run, whatever folders are called
        if not name.exists():
            name.write_text(uuid.uuid4().hex, encoding="utf-8")
        self._run = wandb.init(
            project="relval",
            name=folder.name,
            id=name.read_text(encoding="utf-8"),
            resume="allow",
            config=config,
        )

    def log(self, step: int, metrics: dict[str, float]) -> None:
        """Sends the metrics."""
        self._run.log(metrics, step=step)

    def close(self) -> None:
        """Ends the run there."""
        self._run.finish()
