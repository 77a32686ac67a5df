"""embodied-sync: linear_interp blends a frame's value with a sample that comes after the frame."""
from embodied_sync.align import align_run
from embodied_sync.core.sample import Modality, Sample


def value_at_100_ms(last):
    samples = [Sample(stream_name="arm", modality=list(Modality)[0], sequence_id=number, source_clock_domain="host",
                      acquisition_time_ns=time * 1_000_000, receive_time_ns=time * 1_000_000, payload=[value])
               for number, (time, value) in enumerate(((0, 0.0), (90, 9.0), (110, last), (200, 20.0)))]
    frames = align_run({"arm": samples}, target_rate_hz=10, method="linear_interp").frames
    return next(frame.samples["arm"].payload for frame in frames if frame.target_time_ns == 100_000_000)


print(f"at 100 ms: {value_at_100_ms(11.0)}; if the sample of 110 ms is another: {value_at_100_ms(1000.0)}")
