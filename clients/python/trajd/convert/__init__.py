"""Converts recordings of other projects into an HDF5 file that trajd reads: `python -m trajd.convert`.

Nothing is decoded, except JPEG XL and JPEG 2000, which the daemon does not read. Numbers and encoded images are copied,
and video stays as the packets that were recorded, either copied too or in their MP4 files (--reference). An episode
that does not add up is left out with a sentence that has its file and its numbers, and the others are converted.

    __main__.py   the command line
    shard.py      which part of a data set a run converts, and into which file
    output.py     the loop over episodes and the file that it writes: restart, progress, summary
    objects.py    what an episode consists of: arrays and encoded images
    video.py      a part of an MP4: found by `trajd-decoder describe`, copied or referred to
    lerobot.py    a source: LeRobot data sets
    beside.py     sources with HDF5 files beside MP4 files: DROID, AgiBot World
    replay_buffer.py, zarr_store.py   a source: ReplayBuffers of diffusion_policy and UMI; Zarr stores
    rlds.py, tfrecord.py              a source: RLDS sets of TFDS; TFRecord files and tf.train.Example
    rate.py       rates as exact numbers
    mcap.py       a source: recordings of ROS 2 and Foxglove; their episodes and layout
    bags.py       the files of recordings as raw messages
    messages.py   decodes messages: CDR, Protobuf, JSON
    topics.py     rows and images of the known types
    spool.py      rows on their way to the HDF5 file: their clock and order, and H.264 as an MP4

A new source is a class that is derived from output.Source."""
