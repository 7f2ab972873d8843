"""A camera, a scorer and an artist, each in a process of its own, and one ring of frames that all of them map.

    python examples/camera.py [--frames N] [--slots N] [--width N] [--height N] [--sheet FILE]

The camera writes a frame with NumPy into a slot of the ring, torch says how sharp it is, and Pillow draws the sharpest
ones on a sheet. What goes from process to process is the number of a slot. The ring itself is sent once, as an argument
of the processes: as the descriptor of its memory. A slot is written again once Pillow is done with it.

Each process says whether its library had the frames in the ring, and how many bytes dlbridge.watch() saw copied.
Needs torch and Pillow.
"""

import argparse
import multiprocessing
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import dlbridge

KEPT = 6            # frames on the sheet
SMALL = 320, 180


def numbers(inbox: Any) -> Iterator[Any]:
    """What comes by a queue, until None does."""
    return iter(inbox.get, None)


def is_in(ring: dlbridge.Tensor, slot: int, array: Any) -> bool:
    """Whether an array of any library is where that slot of the ring is."""
    return dlbridge.asdlpack(array).data_ptr == ring.data_ptr + slot * ring.nbytes // ring.shape[0]


def photograph(ring: dlbridge.Tensor, frames: int, empty: Any, taken: Any, report: Any) -> None:
    """Write frames: a disk that moves, and is out of focus but for some moments."""
    with dlbridge.watch() as copies:
        slots = dlbridge.convert(ring, "numpy")
        y, x = np.ogrid[: slots.shape[1], : slots.shape[2]]
        shared = True
        for frame in range(frames):
            slot = empty.get()
            shared = shared and is_in(ring, slot, slots[slot])
            angle, blur = 6.3 * frame / frames, 1 + abs(frame % 20 - 10) * 6
            radius = np.hypot(x - slots.shape[2] * (0.5 + 0.3 * np.cos(angle)),
                              y - slots.shape[1] * (0.5 + 0.3 * np.sin(angle)))
            disk = np.clip((slots.shape[1] / 6 - radius) / blur + 0.5, 0, 1)
            for band, (low, high) in enumerate(((20, 250), (30, 190), (60, 40))):
                slots[slot, :, :, band] = low + (high - low) * disk
            slots[slot, :, :, 3] = 255
            taken.put((slot, frame))
        taken.put(None)
    report.put((0, "camera", "NumPy", shared, sum(copy.nbytes for copy in copies)))


def score(ring: dlbridge.Tensor, taken: Any, scored: Any, report: Any) -> None:
    """Say how sharp frames are."""
    import torch

    with dlbridge.watch() as copies:
        slots = dlbridge.convert(ring, "torch")
        shared = True
        for slot, frame in numbers(taken):
            shared = shared and is_in(ring, slot, slots[slot])
            grey = slots[slot, ::2, ::2, 0].to(torch.int16)
            scored.put((slot, frame, int((grey[:, 1:] - grey[:, :-1]).abs().amax())))
        scored.put(None)
    report.put((1, "scorer", "torch", shared, sum(copy.nbytes for copy in copies)))


def draw(ring: dlbridge.Tensor, scored: Any, empty: Any, report: Any, file: str) -> None:
    """Draw the sharpest frames on a sheet, small."""
    with dlbridge.watch() as copies:
        slots = dlbridge.convert(ring, "numpy")
        shared, best = True, []
        for slot, frame, sharpness in numbers(scored):
            image = Image.frombuffer("RGBA", slots.shape[2:0:-1], slots[slot], "raw", "RGBA", 0, 1)
            slots[slot, 0, 0] = frame % 256, 0, 0, 255      # Pillow does not say where an image is, but sees this
            shared = shared and image.getpixel((0, 0)) == (frame % 256, 0, 0, 255)
            if len(best) < KEPT or sharpness > best[-1][0]:
                best = sorted([*best, (sharpness, frame, image.resize(SMALL))], key=lambda each: -each[0])[:KEPT]
            del image           # the slot is the camera's again
            empty.put(slot)
        sheet = Image.new("RGB", (3 * SMALL[0], 2 * SMALL[1]))
        for place, (sharpness, frame, image) in enumerate(sorted(best, key=lambda each: each[1])):
            ImageDraw.Draw(image).text((8, 8), f"frame {frame}: {sharpness}", "white")
            sheet.paste(image, (place % 3 * SMALL[0], place // 3 * SMALL[1]))
        sheet.save(file)
    report.put((2, "artist", "Pillow", shared, sum(copy.nbytes for copy in copies)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--width", type=int, default=1920)
    parser.add_argument("--height", type=int, default=1080)
    parser.add_argument("--sheet", default="sheet.png")
    given = parser.parse_args()

    context = multiprocessing.get_context("spawn")
    empty, taken, scored, report = (context.Queue() for _ in range(4))
    ring = dlbridge.shared_empty((given.slots, given.height, given.width, 4), "uint8")
    processes = [context.Process(target=target, args=arguments) for target, arguments in (
        (photograph, (ring, given.frames, empty, taken, report)), (score, (ring, taken, scored, report)),
        (draw, (ring, scored, empty, report, given.sheet)))]
    start = perf_counter()
    for process in processes:
        process.start()
    for slot in range(given.slots):
        empty.put(slot)
    reports = [report.get() for _ in processes]
    for process in processes:
        process.join()

    of_all, frame_bytes = given.frames * ring.nbytes // given.slots, ring.nbytes // given.slots
    print(f"{given.frames} frames, {of_all:,} bytes, in {perf_counter() - start:.1f} s, through {given.slots} slots of "
          f"{frame_bytes:,} bytes")
    for _, name, library, shared, copied in sorted(reports):
        place = "in" if shared else "OUTSIDE OF"
        print(f"{name}: {library} had the frames {place} the ring, {copied} bytes were copied")
    print(f"{given.sheet}: the sharpest frames")


if __name__ == "__main__":
    main()
