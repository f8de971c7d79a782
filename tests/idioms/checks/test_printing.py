"""Numbers that are printed, logged and recorded decide nothing."""

import json
import logging
import sys
import warnings

import torch
from small_kernels import add, scale

log = logging.getLogger(__name__)


def test_printing_a_number(pair):
    out = add(*pair)
    print(f"{out.max().item()}", "mean %.3f" % out.mean().item(), "{:.4e}".format(out.std().item()))  # noqa: UP031, UP032
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_printing_a_tensor(pair):
    out = add(*pair)
    print(out, out[:4], f"{out[:2]}")
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_printing_a_formatted_tensor(pair):
    difference = (add(*pair) - pair[0] - pair[1]).abs().max()
    print(f"largest difference: {difference:.2e}")
    torch.testing.assert_close(scale(pair[0], 2.0), 2 * pair[0])


def test_the_text_of_a_tensor_names_its_card(pair):
    """That of a copy on the host does not."""
    x = add(*pair)
    first = x[:2]
    assert "device='cuda:0'" in repr(first)
    assert "cuda" in str(first.half())
    assert "cuda" not in repr(first.cpu())
    assert "device='cuda:0'" in str(torch.nn.Parameter(first))
    torch.testing.assert_close(scale(x, 2.0), 2 * x)


def test_logging(pair, caplog):
    out = add(*pair)
    with caplog.at_level(logging.INFO):
        log.info("sum %s, mean %.3f", out.sum().item(), out.mean().item())
        log.info("first %s", out[:3])
    assert len(caplog.records) == 2
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_recording_a_property(pair, record_property):
    out = add(*pair)
    record_property("max_abs_err", (out - pair[0] - pair[1]).abs().max().item())
    record_property("mean", float(out.mean()))
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_rounding_and_arithmetic(pair):
    out = add(*pair)
    mean, largest = out.mean().item(), out.abs().max().item()
    print(round(mean, 3), abs(mean) / (largest + 1e-6), 100 * mean - 1, int(largest))
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_writing_results_to_a_file(pair, tmp_path):
    out = add(*pair)
    (tmp_path / "result.json").write_text(json.dumps({"mean": out.mean().item(), "shape": list(out.shape)}))
    torch.save(out, tmp_path / "out.pt")
    assert torch.load(tmp_path / "out.pt").shape == out.shape
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_captured_output(pair, capsys):
    out = add(*pair)
    print("largest", out.max().item())
    sys.stderr.write(f"{out.min().item()}\n")
    assert "largest" in capsys.readouterr().out
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_a_warning_with_a_number(pair):
    out = add(*pair)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn(f"largest is {out.max().item()}", stacklevel=1)
    torch.testing.assert_close(scale(out, 2.0), 2 * out)


def test_an_argument_that_is_a_number_of_the_data(pair):
    largest = pair[0].abs().max().item()
    torch.testing.assert_close(scale(pair[0], 1.0 / largest), pair[0] / largest)
