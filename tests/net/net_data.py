"""Writes the data of the net: small files of each shipped layout, and files with clocks, kinds and
images of all sorts."""

import json

import h5py
import numpy as np
from net_draw import Draw
from net_layout_files import write_layout_files
from net_special_files import write_cameras, write_lab, write_odd


def write(folder):
    """Writes all files below `folder`. The order of the drawn numbers depends on nothing but this
    program."""
    write_policy(
        folder / "policy.hdf5", Draw(1), [173, 60, 1, 140, 222, 3, 95, 181, 64, 129, 77, 150]
    )
    write_policy(folder / "other.hdf5", Draw(2), [90, 41, 120, 77, 33], dtype="f4", rate=10)
    for number in range(4):
        write_policy(
            folder / "folder" / f"task_{number}.hdf5",
            Draw(10 + number),
            [40 + 7 * number, 25, 31],
            language=f"task {number % 3}",
            filters={"dtype": "i8"} if number == 2 else {},
        )
    write_lab(folder / "lab.hdf5", Draw(3))
    write_cameras(folder / "cameras.hdf5", Draw(4))
    write_odd(folder / "odd", Draw(5))
    write_layout_files(folder / "layouts", Draw(6))
    write_policy(
        folder / "changed.hdf5", Draw(1), [173, 60, 1, 140, 222, 3, 95, 181, 64, 129, 77, 151]
    )


def write_policy(
    path, draw, lengths, dtype="f8", rate=20, language="open the drawer", filters=None
):
    """Writes a file as robomimic does, low-dimensional, with everything that its layout names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps(
            {"env_name": "Net", "type": 1, "env_kwargs": {"control_freq": rate}}
        )
        data.attrs["problem_info"] = json.dumps({"language_instruction": language})
        data.attrs["total"] = sum(lengths)
        names = [f"demo_{number}" for number in range(len(lengths))]
        for name, rows in zip(names, lengths):
            demo = data.create_group(name)
            demo.attrs["num_samples"], demo.attrs["model_file"] = rows, f"<mujoco model='{name}'/>"
            write_demo(demo, draw, rows, dtype, filters or {})
        for key, chosen in {"train": names[:-2], "valid": names[-2:], "few": names[1:4:2]}.items():
            file[f"mask/{key}"] = np.array(chosen, dtype="S")


def write_demo(demo, draw, rows, dtype, filters):
    """Writes an episode. Positions and quaternions change slowly, so that kinds give different
    values."""
    arrays = {
        "eef_pos": draw.walk(rows, 3, 0.02),
        "eef_quat": draw.quaternions(rows),
        "gripper_qpos": draw.walk(rows, 2, 0.01),
        "joint_pos": draw.walk(rows, 7, 0.1),
    }
    for name, array in arrays.items():
        demo.create_dataset(f"obs/robot0_{name}", data=array.astype(dtype))
        demo.create_dataset(
            f"next_obs/robot0_{name}", data=np.roll(array, -1, axis=0).astype(dtype)
        )
    demo.create_dataset("obs/object", data=draw.uniform(rows, 10, low=-1).astype(dtype))
    actions = draw.uniform(rows, 7, low=-1)
    actions[:, 6] = np.sign(actions[:, 6])
    chunked = {"compression": "gzip", "shuffle": True} if rows > 50 else {}
    demo.create_dataset("actions", data=actions.astype(filters.get("dtype", dtype)), **chunked)
    demo.create_dataset("actions_abs", data=draw.walk(rows, 7, 0.05).astype(dtype))
    demo.create_dataset("action_dict/gripper", data=actions[:, 6:].astype("f4"))
    demo.create_dataset("states", data=draw.walk(rows, 13, 0.05).astype(dtype))
    demo.create_dataset("rewards", data=(draw.integers(0, 20, rows) == 0).astype("f8"))
    demo.create_dataset("dones", data=(np.arange(rows) == rows - 1).astype("i8"))
    demo.create_dataset("labels", data=np.array([f"row {n % 7}" for n in range(rows)], dtype="S8"))
    demo.create_dataset("camera_matrix", data=draw.uniform(4, 4))
