"""An artefact on disk is refused unless it matches its manifest."""

from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
import torch

from contracts.errors import ArtefactRefused
from contracts.manifest import (
    GRAPH_FILE,
    MANIFEST_FILE,
    RATE_FILE,
    Manifest,
    checksum,
    encode_manifest,
    graph_feed,
    read_manifest,
)
from contracts.task import Task
from tests.unit.trainer.export.exported_network import (
    CUTOFF,
    DAY,
    make_network,
    make_rows,
    make_task,
    make_training,
    write,
)
from trainer.data.encoder import Encoder, fit_encoder
from trainer.data.labels import label_bounds
from trainer.export.artefact import torch_answers
from trainer.export.onnx_export import build_graph, build_rate_graph
from trainer.export.opened_artefact import raw_categories, verify_artefact
from trainer.network.network import CohortNetwork


@dataclass(frozen=True)
class Written:
    """An artefact on disk, and the parts that it was written from."""

    folder: Path
    manifest: Manifest
    task: Task
    encoder: Encoder
    network: CohortNetwork


@pytest.fixture(params=["classification", "regression"])
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Written:
    task = make_task(kind=request.param)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, task.training, 2)
    return Written(tmp_path / "artefact", write(tmp_path / "artefact", task, encoder, network), task, encoder, network)


def test_a_written_artefact_is_verified_and_answers(written: Written) -> None:
    session = verify_artefact(written.folder).session
    rows = make_rows(written.task, 20, seed=3)
    found = np.column_stack(session.run(None, graph_feed(written.task, rows.at, rows.numbers, raw_categories(rows))))
    temperature = written.manifest.calibration.temperature
    expected = torch_answers(written.encoder, written.network, [0, 1], rows, temperature)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert read_manifest(written.folder) == written.manifest
    assert written.manifest.parse_task() == written.task


@pytest.mark.parametrize("number_form", ["quantile", "piecewise"])
def test_an_artefact_whose_rows_have_other_forms_is_verified_and_answers(tmp_path: Path, number_form: str) -> None:
    forms = make_training(label_form="log", number_form=number_form)
    task = make_task(kind="regression", training=forms)
    encoder = fit_encoder(task, make_rows(task, 900), CUTOFF)
    network = make_network(encoder, forms, 2)
    manifest = write(tmp_path / "artefact", task, encoder, network)
    rows = make_rows(task, 20, seed=3)
    session = verify_artefact(tmp_path / "artefact").session
    found = np.column_stack(session.run(None, graph_feed(task, rows.at, rows.numbers, raw_categories(rows))))
    np.testing.assert_allclose(found, torch_answers(encoder, network, [0, 1], rows), rtol=1e-4)
    assert manifest.parse_task() == task
    assert manifest.label_bounds == label_bounds(make_task(kind="regression"), make_rows(task, 900))


def test_a_task_of_rules_that_hold_no_longer_is_refused(written: Written) -> None:
    """As readers of an older kept fit expect: one refused fit must not end the look at others."""
    aged = msgspec.structs.replace(written.manifest, task={**written.manifest.task, "window": "never"})
    with pytest.raises(ArtefactRefused, match="task cannot be read"):
        aged.parse_task()


def test_the_probe_holds_unseen_and_missing_values_and_moments_after_the_cutoff(written: Written) -> None:
    probe = written.manifest.probe
    assert len(probe.at) == 18
    assert probe.at[-2:] == [CUTOFF, CUTOFF + 7 * DAY]
    assert not {*probe.categories[-2]} & {*written.encoder.vocabularies[0], *written.encoder.vocabularies[1]}
    assert probe.categories[-1] == ["", ""]
    assert probe.numbers[-1] == [None, None]


def test_the_probe_holds_no_row_of_the_fit(written: Written) -> None:
    """`write` fits only these rows; the manifest and the graph contain a moment and a category anyway."""
    probe, fitted = written.manifest.probe, make_rows(written.task, 900)
    drawn = np.array(probe.numbers, np.float64)
    assert np.isfinite(drawn[:-1]).any(0).all()
    assert not np.isin(drawn[np.isfinite(drawn)], fitted.numbers).any()
    assert len({*map(tuple, probe.categories)}) > 3
    assert min(probe.at) == written.manifest.trained_from
    assert not np.isin(probe.at[1:], fitted.at).any()


def test_an_artefact_appears_whole_over_what_a_killed_try_left(written: Written) -> None:
    partial = written.folder.with_name("artefact.partial")
    partial.mkdir()
    (partial / GRAPH_FILE).write_bytes(b"half")
    write(written.folder, written.task, written.encoder, written.network)
    verify_artefact(written.folder)
    assert sorted(path.name for path in written.folder.parent.iterdir()) == ["artefact"]
    assert sorted(path.name for path in written.folder.iterdir()) == [MANIFEST_FILE, GRAPH_FILE, RATE_FILE]


@pytest.mark.parametrize("name", [GRAPH_FILE, RATE_FILE])
def test_a_truncated_graph_is_refused(written: Written, name: str) -> None:
    file = written.folder / name
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ArtefactRefused, match="another checksum"):
        verify_artefact(written.folder)


@pytest.mark.parametrize("name", [GRAPH_FILE, RATE_FILE])
def test_a_graph_that_no_runtime_loads_is_refused(written: Written, name: str) -> None:
    file = written.folder / name
    file.write_bytes(file.read_bytes()[:-100])
    rewrite(written, checksums=written.manifest.checksums | {name: checksum(file)})
    with pytest.raises(ArtefactRefused, match="cannot be loaded"):
        verify_artefact(written.folder)


def test_a_graph_that_answers_otherwise_is_refused(written: Written) -> None:
    outputs = np.array(written.manifest.probe.outputs)
    outputs[0, 0] += 0.01 * (1.0 if written.task.is_classification else written.encoder.label_unit.scale)
    rewrite(written, probe=msgspec.structs.replace(written.manifest.probe, outputs=outputs.tolist()))
    with pytest.raises(ArtefactRefused, match="otherwise"):
        verify_artefact(written.folder)


def test_a_graph_that_answers_with_nan_is_refused(written: Written) -> None:
    with torch.no_grad():
        written.network.head.bias.fill_(float("nan"))
    put_graph(written, GRAPH_FILE, build_graph(written.encoder, written.network, [0, 1]))
    with pytest.raises(ArtefactRefused, match="otherwise"):
        verify_artefact(written.folder)


def test_a_probe_of_other_features_or_without_rows_is_refused(written: Written) -> None:
    probe = written.manifest.probe
    one_short = [row[:1] for row in probe.numbers]
    for broken in (
        msgspec.structs.replace(probe, numbers=one_short),
        msgspec.structs.replace(probe, at=[], numbers=[], categories=[], outputs=[]),
        msgspec.structs.replace(probe, outputs=[row[:1] for row in probe.outputs]),
    ):
        rewrite(written, probe=broken)
        with pytest.raises(ArtefactRefused):
            verify_artefact(written.folder)


def test_a_manifest_of_another_format_is_refused(written: Written) -> None:
    rewrite(written, format_version=1)
    with pytest.raises(ArtefactRefused, match="format 1"):
        verify_artefact(written.folder)


def test_a_rate_graph_of_another_temperature_or_network_is_refused(written: Written) -> None:
    temperature = written.manifest.calibration.temperature
    other = make_network(written.encoder, written.task.training, 3)
    for graph in (
        build_rate_graph(written.encoder, other, [1, 2], temperature),
        *([build_rate_graph(written.encoder, written.network, [0, 1])] if written.task.is_classification else []),
    ):
        put_graph(written, RATE_FILE, graph)
        with pytest.raises(ArtefactRefused, match="otherwise"):
            verify_artefact(written.folder)


def test_an_artefact_that_does_not_vouch_for_its_rates_is_refused(written: Written) -> None:
    rewrite(written, checksums={GRAPH_FILE: written.manifest.checksums[GRAPH_FILE]})
    with pytest.raises(ArtefactRefused, match="does not vouch for rate"):
        verify_artefact(written.folder)


def put_graph(written: Written, name: str, graph: onnx.ModelProto) -> None:
    (written.folder / name).write_bytes(graph.SerializeToString())
    rewrite(written, checksums=written.manifest.checksums | {name: checksum(written.folder / name)})


def rewrite(written: Written, **changes: object) -> None:
    changed = msgspec.structs.replace(written.manifest, **changes)
    (written.folder / MANIFEST_FILE).write_bytes(encode_manifest(changed))
