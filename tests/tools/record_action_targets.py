#!/usr/bin/env python3
"""Records what trainers' own code makes of actions and states, for tests/golden/targets: record_action_targets.py SOURCES OUT

SOURCES is a folder with these files of their repositories:
  transforms.py                       Physical-Intelligence/openpi, src/openpi
  pose_util.py, pose_repr_util.py     real-stanford/universal_manipulation_interface, umi/common, diffusion_policy/common
  state_action.py                     NVIDIA/Isaac-GR00T, gr00t/data/transform
  rotation_conversions.py             facebookresearch/pytorch3d, pytorch3d/transforms
Needs numpy, scipy and torch. Only the named classes and functions run; everything else that the files import is replaced.
Deterministic: running it again changes nothing.

A file OUT/NAME.txt has arrays of whitespace-separated words: `array NAME ROWS COLUMNS`, then the numbers.
"""
import argparse
import ast
import importlib.util
import pathlib
import sys
import types
from unittest import mock

import numpy as np
from scipy.spatial.transform import Rotation

STEPS = 6


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem + "_recorded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_class(path, name, **values):
    """Runs one class of a file, whose other imports are not needed."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
    exec(compile(tree, str(path), "exec"), values)
    return values[name]


def load_openpi(path):
    names = ("flax", "flax.traverse_util", "jax", "openpi_client", "openpi", "openpi.models", "openpi.shared",
             "openpi.models.tokenizer", "openpi.shared.array_typing", "openpi.shared.normalize")
    with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in names}):
        return load(path)


def load_pytorch3d(path):
    """Returns rotation_conversions.py as the package pytorch3d.transforms."""
    text = path.read_text().replace("from ..common.datatypes import Device", "Device = object")
    module = types.ModuleType("pytorch3d.transforms")
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module


def write(path, arrays):
    with open(path, "w") as file:
        for name, values in arrays.items():
            values = np.atleast_2d(np.asarray(values))
            file.write(f"array {name} {values.shape[0]} {values.shape[1]}\n")
            for row in values:
                file.write(" ".join(repr(float(value)) for value in row) + "\n")


def record_openpi(sources, out):
    transforms = load_openpi(sources / "transforms.py")
    random = np.random.default_rng(1)
    state = random.normal(size=14).astype(np.float32)
    actions = random.normal(size=(STEPS, 14)).astype(np.float32)
    mask = [True] * 6 + [False] + [True] * 6 + [False]
    deltas = transforms.DeltaActions(mask=mask)({"state": state, "actions": actions.copy()})["actions"]
    stats = types.SimpleNamespace(mean=deltas.mean(0), std=deltas.std(0), q01=np.quantile(deltas, 0.01, axis=0),
                                  q99=np.quantile(deltas, 0.99, axis=0))
    normal = transforms.Normalize.__new__(transforms.Normalize)
    back = transforms.Unnormalize.__new__(transforms.Unnormalize)
    scaled, quantiles = normal._normalize(deltas, stats), normal._normalize_quantile(deltas, stats)
    absolute = transforms.AbsoluteActions(mask=mask)({"state": state, "actions": back._unnormalize_quantile(quantiles, stats)})
    write(out / "openpi.txt", {"state": state, "actions": actions, "deltas": deltas, "mean": stats.mean, "std": stats.std,
                               "q01": stats.q01, "q99": stats.q99, "normalized": scaled, "quantiles": quantiles,
                               "absolute": absolute["actions"]})


def record_umi(sources, out):
    pose, representation = load(sources / "pose_util.py"), load(sources / "pose_repr_util.py")
    random = np.random.default_rng(2)
    poses = np.concatenate([random.normal(size=(STEPS, 3)), random.normal(size=(STEPS, 3))], axis=1)
    base = np.concatenate([random.normal(size=3), random.normal(size=3)])
    arrays = {"base": base, "poses": poses}
    for name in ("relative", "rel", "delta"):
        made = representation.convert_pose_mat_rep(pose.pose_to_mat(poses), pose.pose_to_mat(base), name)
        back = representation.convert_pose_mat_rep(made, pose.pose_to_mat(base), name, backward=True)
        arrays[name] = pose.mat_to_pose10d(made)
        arrays[name + "_back"] = pose.mat_to_pose(pose.pose10d_to_mat(pose.mat_to_pose10d(back)))
    write(out / "umi.txt", arrays)


def record_gr00t(sources, out):
    import functools

    import torch
    kit = load_pytorch3d(sources / "rotation_conversions.py")
    Transform = load_class(sources / "state_action.py", "RotationTransform", pt=kit, torch=torch, functools=functools)
    quaternions = Rotation.random(STEPS, random_state=3).as_quat()[:, [3, 0, 1, 2]]
    arrays = {"quaternion": quaternions}
    for name in ("axis_angle", "rotation_6d", "euler_angles_rpy", "matrix"):
        made = Transform("quaternion", name).forward(torch.from_numpy(quaternions)).numpy().reshape(STEPS, -1)
        arrays[name] = made
    angles = torch.from_numpy(arrays["euler_angles_rpy"])
    arrays["rotation_6d_of_euler"] = Transform("euler_angles_rpy", "rotation_6d").forward(angles).numpy()
    write(out / "gr00t.txt", arrays)


def record_gr00t_normaliser(sources, out):
    """Figures are those of numpy over the rows, as GR00T computes them. The last column does not move."""
    import torch
    Normalizer = load_class(sources / "state_action.py", "Normalizer", torch=torch)
    random = np.random.default_rng(4)
    rows = np.concatenate([random.normal(scale=(0.1, 1, 20), size=(40, 3)), np.full((40, 1), 0.25)], axis=1).astype(np.float32)
    figures = {"mean": rows.mean(0), "std": rows.std(0), "min": rows.min(0), "max": rows.max(0),
               "q01": np.quantile(rows, 0.01, axis=0), "q99": np.quantile(rows, 0.99, axis=0)}
    arrays = {"rows": rows, **figures}
    for mode in ("min_max", "mean_std", "q99"):
        made = Normalizer(mode, dict(figures)).forward(torch.from_numpy(rows))
        arrays[mode + "_made"] = made.numpy()
        arrays[mode + "_back"] = Normalizer(mode, dict(figures)).inverse(made).numpy()
    write(out / "gr00t_normaliser.txt", arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for record in (record_openpi, record_umi, record_gr00t, record_gr00t_normaliser):
        record(options.sources, options.out)


if __name__ == "__main__":
    main()
