#!/usr/bin/env python3
"""Records what trainers make of images, by their own code: tests/golden/presets/presets.bin.

    tests/tools/preset_vectors.py FOLDER        # in a Python with torch, torchvision, opencv, tensorflow, h5py, pydantic

FOLDER has checkouts of act (742c753), act-plus-plus (26bab07), robomimic (d309eae), diffusion_policy (5ba07ac),
universal_manipulation_interface (d095ba9), lerobot (7427f31), octo (241fb35), dlimp (ad72ce3), and Isaac-GR00T (n1.5). None of their code is in this tree. Parts of a file whose imports need a simulator are taken out of it by name.

Where a trainer draws, its draw is replaced by given parameters, or its generator is asked again for what it drew. A record is a
little-endian header (see HEADER), the parameters of each augment step, and every `stride`-th value of the tensor that the trainer's
network gets. `bound` is the largest difference in levels of u8, but for `exceptions` values. test_preset_golden.c makes the same from a preset.
"""
import ast
import contextlib
import json
import pathlib
import struct
import sys
import tempfile
import types
from unittest import mock

import h5py
import numpy as np
import torch
import torch.nn as nn
import torchvision.transforms.v2

from image_vectors import make_source

OUTPUT = pathlib.Path(__file__).resolve().parents[1] / "golden" / "presets" / "presets.bin"
HEADER = struct.Struct("<24s8If3I")  # preset, wrist, height, width, mode, steps, sides of the tensor; bound, exceptions, stride, values
PLAIN, DRAWN, CENTER = range(3)      # without augment steps, with these parameters, with draw: center
JITTER = {"brightness": 1.2, "contrast": 0.7, "saturation": 1.3, "hue": 0.05}


def record(preset, size, tensor, bound, mode=PLAIN, steps=(), wrist=False, exceptions=0):
    """Steps have 1 to 4 parameters each."""
    tensor = np.ascontiguousarray(tensor)
    values = tensor.reshape(-1).astype(np.float32)
    stride = max(1, values.size // 1500) | 1
    while values.size % stride == 0 and stride > 1:
        stride += 2
    kept = values[::stride]
    header = HEADER.pack(preset.encode(), wrist, *size, mode, len(steps), *tensor.shape, bound, exceptions, stride, kept.size)
    return header + b"".join(struct.pack("<4f", *step, *[0] * (4 - len(step))) for step in steps) + kept.tobytes()


def take(path, names, **scope):
    """Runs the definitions of these names in a file, and nothing else of it, in a scope."""
    tree = ast.parse(path.read_text())
    body = [node for node in tree.body if getattr(node, "name", None) in names]
    assert len(body) == len(names), (path, names)
    tree.body = ast.parse("from __future__ import annotations").body + body
    scope.setdefault("np", np)
    scope.setdefault("torch", torch)
    scope.setdefault("nn", nn)
    exec(compile(tree, str(path), "exec"), scope)
    return types.SimpleNamespace(**{name: scope[name] for name in names})


@contextlib.contextmanager
def drawn(crop=None, degrees=None):
    """torchvision's transforms draw these parameters, and the colours of JITTER in the order of the list."""
    one, two = torchvision.transforms, torchvision.transforms.v2

    def colors(self, *rest):
        names = [name for name in JITTER if getattr(self, name) is not None]
        factors = [JITTER[name] if name in names else None for name in JITTER]
        return {"fn_idx": [list(JITTER).index(name) for name in names], "brightness_factor": factors[0], "contrast_factor": factors[1],
                "saturation_factor": factors[2], "hue_factor": factors[3]}

    with mock.patch.object(one.RandomCrop, "get_params", staticmethod(lambda image, size: (*crop, *size))), \
            mock.patch.object(one.RandomRotation, "get_params", staticmethod(lambda _: degrees)), \
            mock.patch.object(one.ColorJitter, "get_params", staticmethod(lambda *ranges: (
                [i for i, one_range in enumerate(ranges) if one_range is not None], *JITTER.values()))), \
            mock.patch.object(two.RandomCrop, "make_params", lambda self, inputs: {
                "needs_crop": True, "needs_pad": False, "padding": None, "top": crop[0], "left": crop[1], "height": self.size[0],
                "width": self.size[1]}), \
            mock.patch.object(two.ColorJitter, "make_params", lambda self, inputs: colors(self)):
        yield


def colors_of(*names):
    return [(JITTER[name],) for name in names]


class Network(nn.Module):
    """Keeps what a network is given."""
    def __init__(self, result=None):
        super().__init__()
        self.result, self.seen = result, None

    def forward(self, *inputs, **more):
        self.seen = next(x for x in inputs if torch.is_tensor(x) and x.ndim >= 4).clone()
        return self.result if self.result is not None else torch.zeros(self.seen.shape[0], 1, 8)


def write_episode(path, frame):
    with h5py.File(path, "w") as file:
        file.attrs["sim"] = True
        file["action"] = file["observations/qpos"] = file["observations/qvel"] = np.zeros((1, 14), np.float32)
        file["observations/images/top"] = frame[None]


def act_network(folder, results):
    network = Network(results)
    scope = take(folder, ["ACTPolicy"], build_ACT_model_and_optimizer=lambda arguments: (network, None), transforms=torchvision.transforms)
    return network, scope.ACTPolicy({"kl_weight": 1, "vq": False})


def act(folder):
    stats = {key: np.ones(14, np.float32) for key in ("action_mean", "action_std", "qpos_mean", "qpos_std")}
    dataset = take(folder / "act/utils.py", ["EpisodicDataset"], os=__import__("os"), h5py=h5py).EpisodicDataset
    network, policy = act_network(folder / "act/policy.py", (None, None, (None, None)))
    for size in [(48, 64), (33, 41)]:
        with tempfile.TemporaryDirectory() as place:
            write_episode(f"{place}/episode_0.hdf5", make_source(*size, 3))
            images, qpos, _, _ = dataset([0], place, ["top"], stats)[0]
        policy(qpos[None], images[None])
        yield record("act", size, network.seen[0, 0].numpy(), 0)


def act_plus_plus(folder):
    import cv2
    stats = {f"{key}_{what}": np.ones(16, np.float32) * (what != "min") for key in ("action", "qpos") for what in ("mean", "std", "min", "max")}
    stats["qpos_mean"] = stats["qpos_std"] = np.ones(14, np.float32)
    dataset = take(folder / "act-plus-plus/utils.py", ["EpisodicDataset"], os=__import__("os"), h5py=h5py, cv2=cv2,
                   transforms=torchvision.transforms).EpisodicDataset
    network, policy = act_network(folder / "act-plus-plus/policy.py", (None, None, (None, None), None, None))
    for name, size in [("ACT", (48, 64)), ("Diffusion", (48, 64)), ("Diffusion", (51, 40))]:
        crop, degrees = (1, 2), 3.7
        with tempfile.TemporaryDirectory() as place, drawn(crop, degrees):
            write_episode(f"{place}/episode_0.hdf5", make_source(*size, 3))
            images, qpos, _, _ = dataset([f"{place}/episode_0.hdf5"], ["top"], stats, [0], [1], 1, name)[0]
        if name == "ACT":
            policy(qpos[None], images[None])
            yield record("act++", size, network.seen[0, 0].numpy(), 0)
        else:  # its DiffusionPolicy gives images to the backbones as they are
            yield record("act++_diffusion", size, images[0].numpy(), 3, DRAWN, [
                crop, (), (-degrees, 0, 0, 1), *colors_of("brightness", "contrast", "saturation")])


def robomimic(folder):
    sys.path.insert(0, str(folder / "robomimic"))
    import robomimic.utils.tensor_utils as TU
    scope = {"TU": TU}
    utils = take(folder / "robomimic/robomimic/utils/obs_utils.py",
                 ["process_frame", "batch_image_hwc_to_chw", "crop_image_from_indices", "sample_random_image_crops", "center_crop"], **scope)
    module = types.SimpleNamespace(Module=nn.Module)
    core = take(folder / "robomimic/robomimic/models/obs_core.py", ["CropRandomizer"], Randomizer=nn.Module, BaseNets=module, ObsUtils=utils,
                TensorUtils=TU)
    for size, crop in [((84, 84), 76), ((128, 128), 116)]:
        frame = utils.process_frame(torch.from_numpy(make_source(*size, 3)), 3, 255.)[None]
        randomizer = core.CropRandomizer([3, *size], crop, crop)
        offsets = [7, 3]
        with mock.patch("torch.rand", lambda *shape: torch.full(shape, (offsets.pop(0) + 0.5) / (size[0] - crop))):
            yield record("robomimic", size, randomizer._forward_in(frame)[0].numpy(), 0, DRAWN, [(7, 3)])
        yield record("robomimic", size, randomizer._forward_in_eval(frame)[0].numpy(), 0, CENTER)


def diffusion_policy(folder):
    sys.path.insert(0, str(folder / "diffusion_policy"))
    for name in ("zarr", "filelock"):
        sys.modules.setdefault(name, mock.MagicMock())
    from diffusion_policy.common.cv2_util import get_image_transform
    from diffusion_policy.common.normalize_util import get_image_range_normalizer
    from diffusion_policy.model.vision.multi_image_obs_encoder import MultiImageObsEncoder
    network = Network(torch.zeros(1, 8))
    meta = {"obs": {"cam": {"shape": (3, 240, 320), "type": "rgb"}}}
    encoder = MultiImageObsEncoder(meta, network, resize_shape=[240, 320], crop_shape=[216, 288], random_crop=True, share_rgb_model=True,
                                   imagenet_norm=True)
    for size in [(480, 640), (300, 340)]:
        frame = get_image_transform((size[1], size[0]), (320, 240))(make_source(*size, 3))
        values = get_image_range_normalizer().normalize(torch.from_numpy(np.moveaxis(frame, -1, 0).astype(np.float32) / 255.)[None])
        offsets = [(23, 24), (31, 32)]

        def rand(*shape):
            offset, count = offsets.pop(0)
            return torch.full(shape, (offset + 0.5) / count)
        with mock.patch("torch.rand", rand), torch.no_grad():
            encoder.train()({"cam": values})
            yield record("diffusion_policy", size, network.seen[0].numpy(), 1, DRAWN, [(23, 31)])
            encoder.eval()({"cam": values})
            yield record("diffusion_policy", size, network.seen[0].numpy(), 1, CENTER)
    sys.path.pop(0)
    for name in [name for name in sys.modules if name.split(".")[0] == "diffusion_policy"]:
        del sys.modules[name]


def umi(folder):
    import yaml
    sys.path.insert(0, str(folder / "universal_manipulation_interface"))
    sys.modules.setdefault("zarr", mock.MagicMock())
    network = Network()
    sys.modules["timm"] = types.SimpleNamespace(create_model=lambda **options: network)
    from diffusion_policy.common.cv2_util import get_image_transform
    from diffusion_policy.common.normalize_util import get_image_identity_normalizer
    from diffusion_policy.model.vision.timm_obs_encoder import TimmObsEncoder
    text = (folder / "universal_manipulation_interface/diffusion_policy/config/train_diffusion_unet_timm_umi_workspace.yaml").read_text()
    options = yaml.safe_load(text)["policy"]["obs_encoder"]
    options.pop("_target_")
    crop, *others = options["transforms"]
    options["transforms"] = [types.SimpleNamespace(**crop)]
    for other in others:
        name = other.pop("_target_").rsplit(".", 1)[1]
        options["transforms"].append(getattr(torchvision.transforms, name)(**other))
    options["shape_meta"] = {"obs": {"cam": {"shape": (3, 224, 224), "type": "rgb", "horizon": 1}}}
    options["share_rgb_model"] = True
    encoder = TimmObsEncoder(**options)
    for size in [(300, 400), (224, 224)]:
        frame = get_image_transform((size[1], size[0]), (224, 224))(make_source(*size, 3)) if size[0] != 224 else make_source(*size, 3)
        values = torch.from_numpy(np.moveaxis(frame, -1, 0).astype(np.float32) / 255.)
        values = get_image_identity_normalizer().normalize(values)
        with drawn((5, 12)), torch.no_grad():
            encoder({"cam": values[None, None]})
        yield record("umi", size, network.seen[0].numpy(), 2, DRAWN, [(5, 12), (), *colors_of(*JITTER)])
    sys.path.pop(0)


def openpi_images(folder, size, library):
    """Returns what openpi's loader gives to its preprocessing: an Observation with a base and a wrist camera."""
    from PIL import Image
    tools = take(folder / "openpi/packages/openpi-client/src/openpi_client/image_tools.py", ["resize_with_pad", "_resize_with_pad_pil"], Image=Image)
    tree = ast.parse((folder / "openpi/src/openpi/models/model.py").read_text())
    observation = next(node for node in tree.body if getattr(node, "name", None) == "Observation")
    method = next(node for node in observation.body if getattr(node, "name", None) == "from_dict")
    method.decorator_list = []
    scope = {"np": np, "torch": torch}
    module = ast.parse("from __future__ import annotations")
    module.body.append(method)
    exec(compile(module, "model.py", "exec"), scope)
    resized = tools.resize_with_pad(make_source(*size, 3), 224, 224)[None]
    images = {key: torch.from_numpy(resized.copy()) if library == "torch" else resized.copy() for key in ("base_0_rgb", "left_wrist_0_rgb")}
    masks = {key: np.ones(1, bool) for key in images}
    return scope["from_dict"](types.SimpleNamespace, {"image": images, "image_mask": masks, "state": torch.zeros(1, 8)})


def openpi(folder):
    import jax
    import jax.numpy as jnp
    import logging
    import augmax
    function = take(folder / "openpi/src/openpi/models/model.py", ["preprocess_observation"], jax=jax, jnp=jnp, augmax=augmax,
                    logger=logging, IMAGE_KEYS=(), IMAGE_RESOLUTION=(224, 224), Observation=types.SimpleNamespace).preprocess_observation

    def jitter(key):
        key = jax.random.split(key, 1)[0]  # ColorspaceChain
        amounts = [float(jax.random.uniform(k, minval=-s, maxval=s)) for k, s in zip(jax.random.split(key, 5), (0.3, 0.4, 0.1))]
        return [(amount * bool(jax.random.bernoulli(key, 0.5)),) for amount in amounts]
    for seed, size in [(0, (120, 160)), (5, (300, 224)), (11, (120, 160)), (9, (300, 260))]:
        observation = openpi_images(folder, size, "jax")
        rng = jax.random.key(seed)
        keys = list(observation.images)
        trained = function(rng, observation, train=True, image_keys=keys).images
        plain = function(None, observation, train=False, image_keys=keys).images
        (sample,) = jax.random.split(rng, 1)
        geometry, colors = jax.random.split(sample, 2)  # Chain
        crop, _, turn = jax.random.split(geometry, 3)  # GeometricChain
        move = np.asarray(jax.random.uniform(crop, [2], minval=jnp.array([-6., -6.]), maxval=jnp.array([6., 6.])), np.float64)
        angle = -float(jax.random.uniform(turn, minval=np.radians(-5), maxval=np.radians(5)))
        back = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])  # the inverse of the affine step's turn
        down, right = -(224 / 212) * back @ move
        steps = [(np.degrees(angle), down, right, 224 / 212), *jitter(colors)]
        yield record("openpi", size, np.asarray(trained["base_0_rgb"][0]), 2, DRAWN, steps, exceptions=8)  # almost black: their hue is lost in u8
        (wrist,) = jax.random.split(sample, 1)
        steps = jitter(wrist)
        yield record("openpi", size, np.asarray(trained["left_wrist_0_rgb"][0]), 2, DRAWN, steps, True)
        yield record("openpi", size, np.asarray(plain["base_0_rgb"][0]), 1, CENTER)


def openpi_torch(folder):
    import logging
    tree = take(folder / "openpi/src/openpi/models_pytorch/preprocessing_pytorch.py", ["preprocess_observation_pytorch"], logger=logging,
                image_tools=None, IMAGE_KEYS=(), IMAGE_RESOLUTION=(224, 224))
    for size in [(120, 160), (300, 224)]:
        observation = openpi_images(folder, size, "torch")
        offsets, shares = [3, 11], [0.87, 0.7, 0.2, 0.8, 0.15, 0.9, 0.75]
        with mock.patch("torch.randint", lambda *a, **k: torch.tensor([offsets.pop(0)])), \
                mock.patch("torch.rand", lambda *a, **k: torch.tensor([shares.pop(0)])):
            trained = tree.preprocess_observation_pytorch(observation, train=True, image_keys=list(observation.images)).images
        steps = [(3, 11), (), (-(8.7 - 5), 0, 0, 223 / 224), (0.7 + 0.7 * 0.6,), (0.6 + 0.2 * 0.8,), (0.5 + 0.8,)]
        yield record("openpi_torch", size, trained["base_0_rgb"][0].numpy(), 2, DRAWN, steps)
        steps = [(0.7 + 0.15 * 0.6,), (0.6 + 0.9 * 0.8,), (0.5 + 0.75,)]
        yield record("openpi_torch", size, trained["left_wrist_0_rgb"][0].numpy(), 2, DRAWN, steps, True)


def lerobot_act(folder):
    root = folder / "lerobot/src/lerobot"
    tree = ast.parse((root / "processor/normalize_processor.py").read_text())
    mixin = next(node for node in tree.body if getattr(node, "name", None) == "_NormalizationMixin")
    method = next(node for node in mixin.body if getattr(node, "name", None) == "_apply_transform")
    constants = next(node for node in ast.parse((root / "utils/constants.py").read_text()).body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "IMAGENET_STATS")
    types_ = take(root / "configs/types.py", ["NormalizationMode", "FeatureType"], Enum=__import__("enum").Enum)
    scope = {"torch": torch, "NormalizationMode": types_.NormalizationMode}
    module = ast.parse("from __future__ import annotations")
    module.body += [constants, method]
    exec(compile(module, "normalize_processor.py", "exec"), scope)
    stats = {key: torch.tensor(value, dtype=torch.float32) for key, value in scope["IMAGENET_STATS"].items()}
    self = types.SimpleNamespace(norm_map={types_.FeatureType.VISUAL: types_.NormalizationMode.MEAN_STD}, eps=1e-8,
                                 _tensor_stats={"cam": stats}, to=None)
    size = (48, 64)
    image = torchvision.transforms.ToTensor()(make_source(*size, 3))
    tensor = scope["_apply_transform"](self, image[None], "cam", types_.FeatureType.VISUAL)
    yield record("lerobot_act", size, tensor[0].numpy(), 0)


def gr00t(folder):
    for name in ("albumentations", "gr00t", "gr00t.data", "gr00t.data.schema", "gr00t.data.transform", "gr00t.data.transform.base"):
        sys.modules[name] = mock.MagicMock()
    from pydantic import BaseModel, ConfigDict

    class ModalityTransform(BaseModel):
        model_config = ConfigDict(arbitrary_types_allowed=True)
        apply_to: list = []
        training: bool = True
    sys.modules["gr00t.data.transform.base"].ModalityTransform = ModalityTransform
    scope = {"__name__": "video"}
    exec(compile((folder / "Isaac-GR00T/gr00t/data/transform/video.py").read_text(), "video.py", "exec"), scope)
    for size, crop in [((240, 256), (5, 9)), ((300, 400), (14, 1))]:
        for mode in ("train", "eval"):
            parts = [scope["VideoToTensor"](), scope["VideoCrop"](height=size[0], width=size[1], scale=0.95),
                     scope["VideoResize"](height=224, width=224, interpolation="linear"),
                     scope["VideoColorJitter"](**{"brightness": 0.3, "contrast": 0.4, "saturation": 0.5, "hue": 0.08})]
            for part in parts:
                part.original_resolutions = {"cam": (size[1], size[0])}
            values = make_source(*size, 3)[None]
            with drawn(crop):
                for part in parts:
                    transform = part.get_transform(mode)
                    values = transform(values) if transform else values
            # VideoToNumpy rounds these floats down
            tensor = (values[0].permute(1, 2, 0) * 255).numpy()
            numpy = scope["VideoToNumpy"]().get_transform(mode)(values)[0]
            assert np.abs(numpy - tensor).max() <= 1
            steps = [crop, (), *colors_of(*JITTER)]
            yield record("gr00t", size, tensor, 2 if mode == "train" else 0.51, DRAWN if mode == "train" else CENTER, steps if mode == "train" else [])


def octo(folder):
    sys.path.insert(0, str(folder / "dlimp/dlimp"))  # the files: the package needs tensorflow_datasets
    import tensorflow as tf
    from augmentations import augment_image
    from utils import resize_image
    kwargs = {"random_resized_crop": {"scale": [0.8, 1.0], "ratio": [0.9, 1.1]}, "random_brightness": [0.1], "random_contrast": [0.9, 1.1],
              "random_saturation": [0.9, 1.1], "random_hue": [0.05]}
    text = (folder / "octo/scripts/configs/octo_pretrain_config.py").read_text()
    for key, value in kwargs.items():  # as the configuration has them
        assert f"{key}={'dict(scale=[0.8, 1.0], ratio=[0.9, 1.1])' if isinstance(value, dict) else json.dumps(value)}" in text, key

    def uniform(shape, low, high):
        return float(tf.reshape(tf.random.stateless_uniform(shape, seed, low, high), []))
    for wrist, side in [(False, 256), (True, 128)]:
        for number, size in enumerate([(480, 640), (100, 120)]):
            resized = resize_image(tf.constant(make_source(*size, 3)), (side, side))
            yield record("octo", size, resized.numpy(), 1, CENTER, wrist=wrist)
            seed = tf.constant([7, number], tf.int32)
            order = [key for key in kwargs if not (wrist and "crop" in key)]
            output = augment_image(resized, seed, augment_order=order, **{key: kwargs[key] for key in order})
            area, ratio = uniform((1,), 0.8, 1.0), np.exp(uniform((1,), np.log(0.9), np.log(1.1)))
            height, width = min(np.sqrt(area / ratio), 1), min(np.sqrt(area * ratio), 1)
            box = (uniform((1,), 0, 1 - height), uniform((1,), 0, 1 - width), height, width)
            steps = [box] * (not wrist) + [(uniform((), -0.1, 0.1),), (uniform((), 0.9, 1.1),), (uniform((), 0.9, 1.1),), (uniform((), -0.05, 0.05),)]
            yield record("octo", size, output.numpy(), 3, DRAWN, steps, wrist)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    makers = [act, act_plus_plus, robomimic, diffusion_policy, umi, openpi, openpi_torch, lerobot_act, gr00t, octo]
    chosen = sys.argv[2:]
    with open(OUTPUT, "wb") as file:
        for maker in makers:
            if chosen and maker.__name__ not in chosen:
                continue
            records = list(maker(folder))
            print(maker.__name__, len(records), "records", sum(map(len, records)), "bytes")
            file.write(b"".join(records))


if __name__ == "__main__":
    main()
