"""onnx_runtime.py DIR - runs DIR/*.onnx with ONNX Runtime and compares.

Each model X.onnx has its numbers in X.safetensors: tensors with the names of inputs and outputs. Prints a
line per model, "ok" or what differs; the exit code is 1 if one differs.
"""
import pathlib
import sys

import numpy as np
import onnxruntime
from safetensors.numpy import load_file


def compare(path):
    try:
        numbers = load_file(path.with_suffix(".safetensors"))
    except TypeError:  # NumPy has no bfloat16
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {i.name: numbers[i.name] for i in session.get_inputs()}
    for output, got in zip(session.get_outputs(), session.run(None, given)):
        want = numbers["out." + output.name] if "out." + output.name in numbers else numbers[output.name]
        if got.shape != want.shape:
            return f"{output.name} has the shape {got.shape}, wanted {want.shape}"
        a, b = got.astype(np.float64), want.astype(np.float64)
        finite = np.abs(b[np.isfinite(b)])
        allowed = 2e-5 * (np.abs(b) + 0.1 * (finite.max() if finite.size else 0))
        with np.errstate(invalid="ignore"):
            far = ~((a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= allowed))
        if far.any():
            at = tuple(int(i) for i in np.argwhere(far)[0]) if far.ndim else ()
            return f"{output.name}{list(at)} is {a[at]:.9g}, wanted {b[at]:.9g}"
    return None


def main():
    bad = 0
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
        try:
            why = compare(path)
        except Exception as e:  # the runtime's own message
            why = f"{type(e).__name__}: {str(e).splitlines()[0][:200]}"
        print(f"{'ok' if why is None else 'wrong'} {path.stem}{'' if why is None else ': ' + why}", flush=True)
        bad += why is not None
    sys.exit(bad > 0)


main()
