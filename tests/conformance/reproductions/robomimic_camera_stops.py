"""robomimic: pad_mask marks the ends of an episode. Frames that a stopped camera repeats come without a mark."""
import pathlib
import tempfile

from loaderproof.driver import Share
from loaderproof.drivers.robomimic_sequences import Robomimic
from loaderproof.formulas import make, read_stamp

driver = Robomimic(pathlib.Path(tempfile.mkdtemp()))
driver.write(make("camera stops", episodes=1, seconds=4.0))  # the camera `scene` stops after 2.4 s
for batch in driver.read(Share(shuffle=False)):
    if batch.tick[0] == 96:
        print(f"at {batch.tick[0] * 1000 / 30:.0f} ms the image is of {read_stamp(batch.values['scene'][0, 1:])[0, 0]:.0f} ms, "
              f"valid: {batch.valid['scene'][0, 1]}")
