"""From an image of a digit to a randomly distorted one: elastic strokes, an affine map, contrast and blur.

Every random number comes from the generator that is passed in, so that a seed fixes the result.
"""

from __future__ import annotations

import math
import random

from PIL import Image, ImageEnhance, ImageFilter

_SUPERSAMPLING = 2
"""Geometry is done on an enlarged image, so that thin strokes keep their edges."""
_MESH_CELLS = 8
_ELASTIC_SHIFT_RATIO = 0.02
_MAX_ANGLE_DEGREES = 15.0
_MAX_SHEAR = 0.15
_SCALE = (0.85, 1.15)
_MAX_SHIFT_RATIO = 0.08
_CONTRAST = (0.6, 1.4)
_MAX_BLUR_RADIUS_PX = 1.5


def augment(image: Image.Image, rng: random.Random) -> Image.Image:
    """A distorted copy of ``image``, of the same size and mode.

    Args:
        image: Greyscale, square.
        rng: Source of all randomness.
    """
    size = image.size
    large = image.resize((size[0] * _SUPERSAMPLING, size[1] * _SUPERSAMPLING), Image.Resampling.BICUBIC)
    distorted = affine(elastic(large, rng), rng).resize(size, Image.Resampling.LANCZOS)
    contrasted = ImageEnhance.Contrast(distorted).enhance(rng.uniform(*_CONTRAST))
    return contrasted.filter(ImageFilter.GaussianBlur(rng.uniform(0.0, _MAX_BLUR_RADIUS_PX)))


def elastic(image: Image.Image, rng: random.Random) -> Image.Image:
    """Shift the corners of a mesh at random and draw the cells between them: hands are not steady.

    After Simard, Steinkraus and Platt, "Best Practices for Convolutional Neural Networks applied to Visual Document
    Analysis", 2003, with a coarse mesh in the place of a smoothed field.
    """
    width, height = image.size
    reach = _ELASTIC_SHIFT_RATIO * width
    edges = range(_MESH_CELLS + 1)
    corner = {
        (column, row): (
            column * width / _MESH_CELLS + rng.uniform(-reach, reach),
            row * height / _MESH_CELLS + rng.uniform(-reach, reach),
        )
        for row in edges
        for column in edges
    }
    mesh = []
    for row in range(_MESH_CELLS):
        for column in range(_MESH_CELLS):
            cell = (
                column * width // _MESH_CELLS,
                row * height // _MESH_CELLS,
                (column + 1) * width // _MESH_CELLS,
                (row + 1) * height // _MESH_CELLS,
            )
            # Pillow wants the source corners in this order: upper left, lower left, lower right, upper right.
            source = (
                *corner[column, row],
                *corner[column, row + 1],
                *corner[column + 1, row + 1],
                *corner[column + 1, row],
            )
            mesh.append((cell, source))
    return image.transform(image.size, Image.Transform.MESH, mesh, Image.Resampling.BILINEAR)


def affine(image: Image.Image, rng: random.Random) -> Image.Image:
    """Rotate, shear, scale and shift around the centre."""
    width, height = image.size
    angle = math.radians(rng.uniform(-_MAX_ANGLE_DEGREES, _MAX_ANGLE_DEGREES))
    shear = rng.uniform(-_MAX_SHEAR, _MAX_SHEAR)
    scale = rng.uniform(*_SCALE)
    # Pillow maps each output pixel to its source: the matrix is that of the inverse map.
    a = math.cos(angle) / scale
    b = (math.sin(angle) + shear) / scale
    d = -math.sin(angle) / scale
    e = math.cos(angle) / scale
    centre_x = width / 2 + rng.uniform(-_MAX_SHIFT_RATIO, _MAX_SHIFT_RATIO) * width
    centre_y = height / 2 + rng.uniform(-_MAX_SHIFT_RATIO, _MAX_SHIFT_RATIO) * height
    c = width / 2 - a * centre_x - b * centre_y
    f = height / 2 - d * centre_x - e * centre_y
    return image.transform(image.size, Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BICUBIC)
