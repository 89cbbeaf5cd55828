"""onnx_nodes.py OUT - the node tests of the installed onnx package as folders.

A folder OUT/NAME has model.onnx, and test_data_set_K/input_J.pb and output_J.pb, as Debian's libonnx-testdata has them. Wheels of onnx have
the code that computes the tests, not the files. tests/onnx/test_onnx_nodes.c runs the folders (PL_ONNX_NODES).
"""
import pathlib
import sys
import warnings

import onnx
from onnx import numpy_helper
from onnx.backend.test.case.node import collect_testcases

warnings.filterwarnings("ignore")


def message(value, info):
    """The protobuf message of a value that has this declaration."""
    if isinstance(value, onnx.TensorProto):
        return value
    kind = info.type.WhichOneof("value")
    make = {"map_type": "from_dict", "sequence_type": "from_list", "optional_type": "from_optional"}.get(kind, "from_array")
    return getattr(numpy_helper, make)(value, info.name)


def main():
    out = pathlib.Path(sys.argv[1])
    for case in collect_testcases(None):
        folder = out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(case.model.SerializeToString())
        for k, data_set in enumerate(case.data_sets):
            data = folder / f"test_data_set_{k}"
            data.mkdir(exist_ok=True)
            for word, values, infos in zip(("input", "output"), data_set, (case.model.graph.input, case.model.graph.output)):
                for j, value in enumerate(values):
                    (data / f"{word}_{j}.pb").write_bytes(message(value, infos[j]).SerializeToString())


main()
