"""The feeds of images: forms in files, preparation, presets, augmentation, norm and layout."""

DATASETS = {"cameras": {"path": "data/cameras.hdf5", "layout": "./data/cameras.yaml"}}
ALL = (
    "raw",
    "raw_bgr",
    "raw_gray",
    "png",
    "png_180",
    "jpeg",
    "jpeg_text",
    "jpeg_gray",
    "mixed",
    "packed",
    "near",
)
FILTERS = (
    "pillow-bilinear",
    "pillow-box",
    "pillow-bicubic",
    "pillow-lanczos",
    "tf-lanczos3",
    "area",
    "linear",
    "nearest",
)
FITS = ("stretch", "pad", "pad_topleft", "cover")
PRESETS = (
    "robomimic",
    "act",
    "act++",
    "act++_diffusion",
    "diffusion_policy",
    "umi",
    "openpi",
    "openpi_torch",
    "lerobot_act",
    "gr00t",
    "octo",
)


def feed(outputs, **keys):
    return {
        "dataset": "cameras",
        "global_batch": 6,
        "anchor": {"clock": "steps"},
        "pad": {"before": "any", "after": "any", "with": "edge"},
        "bad_rows": "keep",
        "outputs": outputs,
        **keys,
    }


def image(stream="jpeg", at="-1..0", more=None, **keys):
    return {"from": stream, "at": at, "image": keys, **(more or {})}


PREPARED = {
    "stored": feed(
        {
            **{name: {"at": "-1..0"} for name in ALL + ("bad", "depth16", "depth32", "depth_png")},
            "plain": {"at": "-1..0"},
        }
    ),
    "decoded": feed({name: image(name) for name in ALL + ("bad", "zeros")}),
    "depth": feed(
        {
            "whole": image("depth16"),
            "cut": image("depth16", crop=[20, 30]),
            "small": image("depth32", resize=[24, 32], filter="nearest"),
            "png": image("depth_png", resize=[24, 32], filter="nearest", fit="pad"),
        }
    ),
    "crops": feed(
        {
            "middle": image(crop=[30, 40]),
            "place": image(crop={"top": 3, "left": 7, "height": 21, "width": 33}),
            "small": image("raw", crop=[40, 40], resize=16),
            "turned": image("png_180", crop={"top": 3, "left": 7, "height": 21, "width": 33}),
        }
    ),
    **{
        f"filter_{name}": feed(
            {
                **{
                    f"smaller_{fit}": image("raw", resize=[20, 36], fit=fit, filter=name)
                    for fit in FITS
                },
                **(
                    {}
                    if name == "area"
                    else {
                        f"larger_{fit}": image("jpeg", at=0, resize=[60, 70], fit=fit, filter=name)
                        for fit in FITS[:2]
                    }
                ),
            }
        )
        for name in FILTERS
    },
    "pad_value": feed(
        {
            "gray": image("raw", resize=[40, 40], fit="pad", pad_value=114),
            "zero": image("bad", resize=[40, 40], fit="pad", pad_value=9),
        },
        pad={"before": "any", "after": "any", "with": "zero"},
    ),
    **{
        f"channels_{name}": feed(
            {
                stream: image(stream, channels=name)
                for stream in ("raw", "raw_bgr", "jpeg", "jpeg_text", "png_180")
            }
        )
        for name in ("rgb", "bgr", "cv2")
    },
    **{
        f"norm_{norm}": feed(
            {
                "hwc": image("raw", more={"norm": norm}),
                "chw": image("jpeg", more={"norm": norm, "layout": "chw"}),
                "half": image("png", more={"norm": norm, "dtype": "float16"}),
                "bf16": image("png", more={"norm": norm, "dtype": "bfloat16"}),
            }
        )
        for norm in ("unit", "signed", "imagenet", "signed-imagenet")
    },
    "norm_numbers": feed(
        {
            "one": image("raw", more={"norm": {"mean": 0.5, "std": [0.2, 0.3, 0.25]}}),
            "gray": image("raw_gray", more={"norm": "unit"}),
        }
    ),
    "chw": feed(
        {name: image(name, more={"layout": "chw"}) for name in ("raw", "jpeg", "jpeg_gray")}
    ),
    "nan": feed(
        {"raw": image("raw", more={"norm": "unit"})},
        pad={"before": "any", "after": "any", "with": "nan"},
    ),
    "other_rate": feed(
        {
            "jpeg": image(at="-3..0"),
            "raw": {"at": "-2..0"},
            "near": image("near"),
            "aged": image(at="-2..0", more={"max_gap": "30ms"}),
        },
        rate=47,
    ),
    "queue_of_many": feed(
        {"jpeg": image(resize=12)}, windows="one_per_episode", global_batch=2, epoch=30
    ),
    "goal": feed(
        {
            "goal/jpeg": {"goal": {"from": "future", "of": "jpeg"}, "image": {"resize": 20}},
            "actions": {"at": 0},
        }
    ),
    "blocked": feed(
        {"png": image("png", resize=20)},
        order="blocked",
        block={"windows": 10, "neighbours": 2},
        tail="short",
    ),
}
PRESET_FEEDS = {
    **{
        f"{preset.replace('+', 'p')}": feed({"big": {"at": "0", "image": {"preset": preset}}})
        for preset in PRESETS
    },
    **{
        f"{preset}_wrist": feed({"big": {"at": "0", "image": {"preset": preset, "view": "wrist"}}})
        for preset in ("octo", "openpi", "openpi_torch")
    },
    **{
        f"{preset.replace('+', 'p')}_center": feed(
            {"big": {"at": "0", "image": {"preset": preset, "draw": "center"}}}
        )
        for preset in PRESETS
    },
    "without_augment": feed({"big": {"at": "0", "image": {"preset": "openpi", "augment": []}}}),
}


def augmented(*steps, stream="raw", **keys):
    return image(stream, at="-1..0", augment=list(steps), **keys)


STEPS = {
    "crop": {"crop": [32, 40]},
    "crop_last": {"crop": [32, 40], "excludes_last": True},
    "crop_share": {"crop": 0.8},
    "flip": {"flip": 0.5},
    "affine": {"affine": 20, "translate": [0.1, 0.2], "scale": [0.8, 1.2], "filter": "linear"},
    "affine_nearest": {"affine": 45, "filter": "nearest", "p": 0.6},
    "affine_alone": {"affine": 10},
    "resize": {"resize": [30, 50], "filter": "pillow-bicubic"},
    "resized_crop": {
        "random_resized_crop": [24, 24],
        "scale": [0.5, 1],
        "ratio": [0.8, 1.2],
        "box": "pixels",
    },
    "resized_crop_tf": {
        "random_resized_crop": [24, 24],
        "scale": [0.5, 1],
        "ratio": [0.8, 1.2],
        "box": "tf",
        "filter": "linear",
    },
    "resized_crop_back": {"random_resized_crop": "back", "scale": [0.5, 0.9]},
    **{
        name: {name: amount}
        for name, amount in {
            "brightness": 0.3,
            "contrast": 0.4,
            "saturation": 0.5,
            "hue": 0.08,
            "shift": 0.1,
            "channel_contrast": 0.1,
            "hsv_saturation": 0.1,
            "hsv_brightness": 0.3,
            "hsv_contrast": 0.4,
            "flat_contrast": 0.4,
            "flat_saturation": 0.5,
        }.items()
    },
    "brightness_range": {"brightness": [0.5, 1.6], "p": 0.5},
}
COLOURS = (
    {"brightness": 0.3},
    {"contrast": [0.6, 1.4]},
    {"saturation": 0.5, "p": 0.7},
    {"hue": 0.08, "p": "same"},
)
GEOMETRY = ({"crop": [40, 56]}, {"flip": 0.5}, {"affine": 8}, {"resize": "back"})
AUGMENTED = {
    **{
        f"step_{name}": feed(
            {
                "raw": augmented(step),
                "unit": augmented(step, more={"norm": "unit", "layout": "chw"}),
            }
        )
        for name, step in STEPS.items()
    },
    **{
        f"rounding_{rounding}": feed(
            {
                "raw": augmented(*COLOURS, rounding=rounding),
                "unit": augmented(
                    *COLOURS, stream="jpeg", rounding=rounding, more={"norm": "imagenet"}
                ),
            }
        )
        for rounding in ("once", "each")
    },
    "rounding_end": feed(
        {
            "raw": augmented(*COLOURS[:3], rounding="end"),
            "unit": augmented(*COLOURS[:3], rounding="end", more={"norm": "unit"}),
        }
    ),
    **{
        f"draw_per_{per}": feed(
            {
                name: augmented(*GEOMETRY, *COLOURS, stream=name, draw_per=per, resize=[48, 64])
                for name in ("raw", "jpeg", "png")
            }
        )
        for per in ("frame", "step", "camera", "window")
    },
    "draw_center": feed(
        {
            "raw": augmented(*GEOMETRY, *COLOURS, draw="center"),
            "jpeg": augmented(*GEOMETRY, stream="jpeg", draw="center"),
        }
    ),
    "gray": feed(
        {
            "raw_gray": augmented(
                {"crop": [40, 56]}, {"brightness": 0.3}, {"contrast": 0.2}, stream="raw_gray"
            )
        }
    ),
    "seeded": feed({"raw": augmented(*GEOMETRY)}, seed=77, epoch=100),
}
GROUPS = {"prepared": PREPARED, "presets": PRESET_FEEDS, "augmented": AUGMENTED}
