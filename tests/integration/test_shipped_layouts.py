"""The shipped layouts: each reads a file of its family as h5py does, and knows the traps of the family."""
import json
import subprocess

import h5py
import numpy as np
import pytest

import families
from paths import ROOT, TRAJCTL

LAYOUTS = ROOT / "configs/layouts"
SHARED = ROOT.parent / "shared/data"


def trajctl(*arguments):
    return subprocess.run([TRAJCTL, *arguments], capture_output=True, text=True, timeout=120)


def inspect(path, layout=None):
    done = trajctl("inspect", "--json", *(["--layout", layout] if layout else []), path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def groups_of(file, layout):
    """Returns the episodes' groups in h5py's file, by id."""
    if layout in ("aloha", "droid_raw", "droid_im", "robomind", "robotwin", "robotwin_bgr"):
        return {None: file["/"]}
    inside = file["data"] if "data" in file else file
    return {name: group for name, group in inside.items() if isinstance(group, h5py.Group)}


def compare(document, path, encoded=()):
    """Compares episodes, rows, types and shapes with h5py's reading."""
    with h5py.File(path) as file:
        groups = groups_of(file, document["layout"])
        assert document["kept_count"] == document["episode_count"] == len(groups)
        for stream in document["streams"]:
            found = [group[stream["dataset"]] for group in groups.values()]
            rows = [len(dataset) for dataset in found]
            is_cut = document["trimmed_rows"] and rows[0] == families.T + 1
            assert (stream["fewest_rows"], stream["most_rows"]) == (min(rows) - is_cut, max(rows) - is_cut), stream
            if stream["name"] in encoded:
                assert stream["row_shape"] == [48, 64, encoded[stream["name"]]], stream
                continue
            kind = {"f": "f", "i": "i", "u": "u", "b": "bool"}[found[0].dtype.kind]
            assert stream["dtype"] == (kind if kind == "bool" else f"{kind}{found[0].dtype.itemsize * 8}"), stream
            columns = list(found[0].shape[1:])
            assert stream["row_shape"] == columns or stream["name"].split("/")[-1] in (
                "position", "orientation", "eef_position", "eef_euler"), stream
        if None not in groups:
            counted = {e["id"]: list(e["rows"].values())[0] for e in document["episodes"]}
            assert counted == {name: len(group["actions"]) for name, group in groups.items()}
    return {s["name"]: s for s in document["streams"]}


def make(tmp_path, family, **options):
    path = tmp_path / f"{family}.hdf5"
    getattr(families, family)(path, **options)
    return path


def one_clock(document):
    [clock] = [clock for clock in document["clocks"] if clock["rows"]]
    return clock["lowest_rate_hz"], clock["rate_source"]


def test_aloha(tmp_path):
    raw = inspect(make(tmp_path, "aloha"))
    streams = compare(raw, tmp_path / "aloha.hdf5")
    assert raw["layout"] == "aloha" and one_clock(raw) == (50, "assumed") and streams["observations/images/top"]["kind"] == "previous"
    path = make(tmp_path, "aloha", compress=True)
    packed = inspect(path)
    compare(packed, path, {f"observations/images/{camera}": 3 for camera in ("cam_high", "cam_left_wrist", "cam_right_wrist")})
    assert packed["layout"] == "aloha" and "compress_len" not in [s["dataset"] for s in packed["streams"]]


def test_aloha_of_two_widths(tmp_path):
    """The padding of each episode is as long as its longest frame."""
    for number, extra in enumerate((0, 50)):
        families.aloha(tmp_path / f"episode_{number}.hdf5", compress=True)
        with h5py.File(tmp_path / f"episode_{number}.hdf5", "r+") as file:
            for camera, data in [(name, data[:]) for name, data in file["observations/images"].items()]:
                del file[f"observations/images/{camera}"]
                file[f"observations/images/{camera}"] = np.pad(data, ((0, 0), (0, extra)))
    document = inspect(tmp_path)
    assert document["kept_count"] == 2 and all(s["episodes"] == 2 for s in document["streams"]), document


@pytest.mark.parametrize("layout, color", [("robotwin", "rgb"), ("robotwin_bgr", "bgr")])
def test_robotwin(tmp_path, layout, color):
    path = make(tmp_path, "robotwin")
    document = inspect(path, layout)
    streams = compare(document, path, {f"observation/{camera}/rgb": 3 for camera in ("head_camera", "left_camera")})
    assert one_clock(document) == (15, "declared") and len(streams) == 11
    assert document["episodes"][0]["meta"] == {"language": None}
    (tmp_path / "instructions").mkdir()
    (tmp_path / "data").mkdir()
    families.robotwin(tmp_path / "data/episode0.hdf5")
    (tmp_path / "instructions/episode0.json").write_text(json.dumps({"seen": ["pick it", "grasp it"], "unseen": ["lift it"]}))
    assert inspect(tmp_path / "data/episode0.hdf5", layout)["episodes"][0]["meta"] == {"language": "pick it"}
    assert f"jpeg 48x64 {color}" in trajctl("inspect", "--layout", layout, path).stdout


def test_colours_of_robotwin_are_not_guessed(tmp_path):
    for command in ("inspect", "validate", "init"):
        done = trajctl(command, make(tmp_path, "robotwin"))
        assert done.returncode == 1 and "robotwin and robotwin_bgr fit" in done.stderr + done.stdout, done
    with h5py.File(tmp_path / "robotwin.hdf5", "r+") as file:
        del file["additional_info"]
    assert one_clock(inspect(tmp_path / "robotwin.hdf5", "robotwin")) == (15, "assumed")


def test_robomind(tmp_path):
    path = make(tmp_path, "robomind")
    document = inspect(path)
    cameras = ("camera_left", "camera_top")
    streams = compare(document, path, {f"observations/rgb_images/{c}": 3 for c in cameras} | {f"observations/depth_images/{c}": 1 for c in cameras})
    assert document["layout"] == "robomind" and one_clock(document) == (30, "assumed")
    assert streams["puppet/joint_position"]["kind"] == "linear" and streams["puppet/end_effector"]["kind"] == "previous"
    assert "\nframes " not in trajctl("validate", path).stdout  # a raw frame among JPEGs is a frame


def test_libero(tmp_path):
    path = make(tmp_path, "libero")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "libero" and one_clock(document) == (20, "declared")
    assert [e["meta"]["language"] for e in document["episodes"]] == ["pick up the can"] * 2
    assert streams["obs/ee_ori"]["kind"] == "previous" and streams["obs/ee_pos"]["kind"] == "linear"
    text = (LAYOUTS / "libero.yaml").read_text()
    assert all("flip: v" in line for line in text.splitlines() if "_rgb:" in line), "images of LIBERO are upside down"


def test_robomimic(tmp_path):
    path = make(tmp_path, "robomimic")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "robomimic" and streams["obs/robot0_eef_quat"]["kind"] == "slerp xyzw"


def test_mimicgen(tmp_path):
    path = make(tmp_path, "mimicgen")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "mimicgen" and one_clock(document) == (20, "declared")
    assert streams["datagen_info/object_poses/cube"]["kind"] == "previous" and "states" not in streams


def test_isaaclab(tmp_path):
    path = make(tmp_path, "isaaclab")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "isaaclab" and one_clock(document) == (20, "assumed")
    assert [e["id"] for e in document["episodes"]] == ["demo_0", "demo_2"]  # demo_1 was deleted
    assert streams["robot/orientation"]["kind"] == streams["obs/eef_quat"]["kind"] == "slerp wxyz"
    assert streams["robot/orientation"]["row_shape"] == [4] and streams["obs/table_cam"]["kind"] == "previous"
    assert "initial_state" not in " ".join(streams)


def test_maniskill(tmp_path):
    path = make(tmp_path, "maniskill")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "maniskill" and one_clock(document) == (20, "assumed") and document["notes"] == []
    assert [e["id"] for e in document["episodes"]] == ["traj_0", "traj_1", "traj_10"]
    path.with_suffix(".json").write_text(json.dumps({"env_info": {}, "episodes": [
        {"episode_id": i, "success": i != 1, "control_mode": "pd_joint_pos"} for i in (0, 1, 10)]}))
    assert [e["meta"] for e in inspect(path)["episodes"]] == [
        {"success_of_episode": success, "control_mode": "pd_joint_pos"} for success in ("true", "false", "true")]
    assert streams["obs/sensor_data/base_camera/depth"]["dtype"] == "u16" and document["trimmed_rows"] == 15
    with h5py.File(path, "r+") as file:
        del file["traj_0/obs/agent/qpos"]
        file["traj_0/obs/agent/qpos"] = np.zeros((families.T, 9), np.float32)
    assert [e["id"] for e in inspect(path)["episodes"] if e["quarantine"] and "exactly one row more" in e["quarantine"]] == ["traj_0"]


def test_minari(tmp_path):
    path = make(tmp_path, "minari")
    document = inspect(path)
    compare(document, path)
    assert document["layout"] == "minari" and document["trimmed_rows"] == 6 and document["notes"] == []


@pytest.mark.parametrize("images", ["padded", "vlen"])
def test_minari_with_images(tmp_path, images):
    path = make(tmp_path, "minari", images=images)
    document = inspect(path)
    compare(document, path, {"observations": 3})
    assert document["layout"] == "minari_jpeg" and document["trimmed_rows"] == 4


def test_droid_raw(tmp_path):
    path = make(tmp_path, "droid_raw")
    document = inspect(path)
    streams = compare(document, path)
    assert document["layout"] == "droid_raw" and [c["shortest_interval_ns"] for c in document["clocks"]] == [59_000_000] * 2
    with h5py.File(path) as file:
        stamps = file["observation/timestamp/robot_state/read_end"][:]
    assert document["clocks"][0]["longest_interval_ns"] == np.diff(stamps).max() * 1_000_000
    assert streams["observation/robot_state/eef_euler"]["kind"] == "previous" and streams["skip_action"]["dtype"] == "bool"


def test_droid_im(tmp_path):
    path = make(tmp_path, "droid_im")
    document = inspect(path)
    compare(document, path)
    assert document["layout"] == "droid_im" and one_clock(document) == (15, "assumed")
    text = trajctl("validate", path).stdout
    assert text.count("1 frame of zeros alone, the first is row 3") == 2 and text.count("feeds mask them") == 2, text
    assert trajctl("inspect", path).stdout.count("frames of zeros masked") == 2


@pytest.mark.parametrize("name, layout", [
    ("images/act_raw.hdf5", "aloha"), ("images/mobile_aloha.hdf5", "aloha"), ("images/libero.hdf5", "libero"),
    ("images/robomimic_image84.hdf5", "robomimic"), ("images/robomimic_image84_gzip.hdf5", "robomimic"),
    ("images/robomind.hdf5", "robomind"), ("images/maniskill_rgbd.h5", "maniskill"), ("images/droid_im128.h5", "droid_im"),
    ("robosuite_lift_panda_demo.hdf5", "robosuite_raw"), ("robosuite_SawyerLift_demo.hdf5", "robosuite_raw")])
def test_files_of_the_public_recorders(name, layout):
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/data/{name} is missing")
    document = inspect(SHARED / name)
    assert document["layout"] == layout and document["quarantined_count"] == 0
    with h5py.File(SHARED / name) as file:
        for group in groups_of(file, layout).values():
            for stream in document["streams"]:
                dataset = group[stream["dataset"]]
                is_cut = layout == "maniskill" and stream["dataset"].startswith("obs")
                assert stream["fewest_rows"] <= len(dataset) - is_cut <= stream["most_rows"], stream


def test_no_layout_fits(tmp_path):
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["recording/arm"] = np.zeros((9, 3))
    document = trajctl("inspect", tmp_path / "other.hdf5").stdout
    for word in ("libero, mimicgen, isaaclab, robomimic, robosuite_raw: no group matches /data/demo_*", "maniskill: no group matches /traj_*",
                 "aloha: action: missing", "robotwin: observation/head_camera/rgb: missing", "robomind: has none"):
        assert word in document, document


# The layouts of 0.1.0.

OLD = ["robomimic@1", "aloha@1"]


@pytest.mark.parametrize("layout", OLD)
def test_layouts_of_0_1_0_are_there(tmp_path, layout):
    """Their text is that of commit faccda6, 0.1.0, below the first line."""
    shown = subprocess.run(["git", "show", f"faccda6:configs/layouts/{layout[:-2]}.yaml"], cwd=ROOT, capture_output=True, text=True)
    if shown.returncode:
        pytest.skip("no git history")
    assert (LAYOUTS / f"{layout}.yaml").read_text().split("\n", 1)[1] == shown.stdout


def test_fingerprints_of_0_1_0(tmp_path):
    """The fingerprints that 0.1.0 gave these files. It had the layouts' hashes and the same rules for these structures."""
    with h5py.File(tmp_path / "one.hdf5", "w") as file:
        for number in range(2):
            file[f"data/demo_{number}/actions"] = np.arange(70, dtype=np.float64).reshape(10, 7) + number
            file[f"data/demo_{number}/states"] = np.arange(20, dtype=np.float64).reshape(10, 2) * 0.05
            file[f"data/demo_{number}/obs/robot0_eef_quat"] = np.tile([0.0, 0, 0, 1], (10, 1))
            file[f"data/demo_{number}/obs/x_quat_site"] = np.ones((10, 4))
    with h5py.File(tmp_path / "episode_0.hdf5", "w") as file:
        for name in ("action", "observations/qpos"):
            file[name] = np.arange(140, dtype=np.float32).reshape(10, 14)
        file["observations/images/top"] = np.arange(10 * 4 * 4 * 3, dtype=np.uint8).reshape(10, 4, 4, 3)
    assert [inspect(tmp_path / name, layout)["fingerprint"] for name, layout in (
        ("one.hdf5", "robomimic@1"), ("one.hdf5", "robosuite_raw"), ("episode_0.hdf5", "aloha@1"))] == FINGERPRINTS
    assert inspect(tmp_path / "one.hdf5", "robomimic")["fingerprint"] != FINGERPRINTS[0]


FINGERPRINTS = ["e92899e6f62b638b", "54e7b172761adff9", "8fbdc257885e82f5"]


@pytest.mark.parametrize("missing, layout", [(1, "libero"), (7, "libero"), (8, "robomimic")])
def test_the_first_eight_episodes_decide(tmp_path, missing, layout):
    """A layout that none of the first eight fits is passed over without a look at the others."""
    with h5py.File(make(tmp_path, "libero"), "r+") as file:
        for number in range(2, 10):
            file.copy("data/demo_0", f"data/demo_{number}")
        for number in range(missing):
            del file[f"data/demo_{number}/obs/agentview_rgb"]
    document = inspect(tmp_path / "libero.hdf5")
    assert (document["layout"], document["kept_count"]) == (layout, 10 - missing if layout == "libero" else 10)


@pytest.mark.parametrize("family, name", [
    ("aloha", "episode_0"), ("droid_im", "trajectory_im128"), ("droid_raw", "trajectory"), ("isaaclab", "a"), ("libero", "a"),
    ("maniskill", "a"), ("mimicgen", "a"), ("minari", "a"), ("robomimic", "a"), ("robomind", "a"), ("robotwin", "a")])
def test_both_endings_are_found(tmp_path, family, name):
    """A copy of a dataset may be called .h5 where the recorder writes .hdf5, or the other way round."""
    folders = {ending: tmp_path / ending for ending in ("hdf5", "h5", "both")}
    for ending, folder in folders.items():
        folder.mkdir()
        for number, own in enumerate(["hdf5", "h5"] if ending == "both" else [ending]):
            (folder / str(number)).mkdir()
            getattr(families, family)(folder / str(number) / f"{name}.{own}")
    layout = "robotwin" if family == "robotwin" else None  # two layouts fit it
    found = {ending: inspect(folder, layout) for ending, folder in folders.items()}
    assert found["hdf5"]["layout"] == found["h5"]["layout"] == found["both"]["layout"]
    assert [len(one["files"]) for one in found.values()] == [1, 1, 2], found
    assert found["both"]["kept_count"] == 2 * found["h5"]["kept_count"] == 2 * found["hdf5"]["kept_count"] > 0


def test_five_lengths_of_aloha_are_one_dataset(tmp_path, monkeypatch):
    """compress_len (cameras, T) has another shape in each file."""
    for episode in range(5):
        monkeypatch.setattr(families, "T", 20 + 7 * episode)
        families.aloha(tmp_path / f"episode_{episode}.hdf5", compress=True)
    made = trajctl("init", tmp_path)
    assert made.returncode == 0 and "from 5 episodes" in made.stdout and "layout: aloha" in made.stdout, made
    assert made.stdout.count("    path:") == 1 and "several kinds" not in made.stderr


def test_droid_of_its_own_writer_is_resampled(tmp_path):
    """The stamps of cameras and of the loop have a row for each step, too. init does not offer them to a policy."""
    source, made = tmp_path / "trajectory.h5", tmp_path / "made" / "trajectory.h5"
    made.parent.mkdir()
    families.droid_raw(source)
    done = trajctl("resample", source, "-o", made, "--rate", "10")
    assert done.returncode == 0, done.stderr
    with h5py.File(made) as file, h5py.File(source) as recorded:
        names = []
        recorded.visititems(lambda name, one: names.append(name) if isinstance(one, h5py.Dataset) else None)
        rows = len(file["action/joint_position"])
        assert rows < families.T and {len(file[name]) for name in names} == {rows}
        camera = "observation/timestamp/cameras/123_left_estimated_capture"
        assert set(file[camera][:]) <= set(recorded[camera][:])
    config = trajctl("init", source).stdout
    assert "      # observation/timestamp/cameras/" in config and "from: observation/timestamp" not in config


@pytest.mark.parametrize("version, kept", [(1, 1), (2, 2)])
def test_version_1_keeps_the_ending(tmp_path, version, kept):
    (tmp_path / "data").mkdir()
    for ending in ("hdf5", "h5"):
        families.droid_raw(tmp_path / "data" / f"trajectory.{ending}")
    (tmp_path / "trajd.yaml").write_text(
        f"version: {version}\ndatasets: {{d: {{path: data, layout: droid_raw}}}}\nfeeds: {{train: {{dataset: d, global_batch: 1, "
        "anchor: {clock: control}, outputs: {action/joint_position: {at: 0}}}}\n")
    checked = trajctl("check", tmp_path / "trajd.yaml")
    assert f"({kept} of {kept} kept)" in checked.stdout, checked
