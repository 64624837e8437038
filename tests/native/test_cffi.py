# SPDX-License-Identifier: Apache-2.0
"""What Python knows of C's enumerations."""

from __future__ import annotations

import re

from cellblock._image_core import lib
from cellblock.jail.source.image_core import _FAULTS, _LOSSES
from cellblock.jail.tree.unsupported import LOSSES
from cellblock.paths import PROJECT


def test_each_fault_and_each_loss_has_a_name() -> None:
    """A new one in C without a name in Python would end an assembly by a KeyError, or go untold."""
    assert sorted(_LOSSES) == list(range(lib.IMAGE_N_LOSSES))
    assert set(_LOSSES.values()) == set(LOSSES)
    (body,) = re.findall(
        r"enum image_fault \{(.*?)\};", (PROJECT / "native/layers/error.h").read_text(), re.DOTALL
    )
    assert len(_FAULTS) == len(set(re.findall(r"IMAGE_FAULT_\w+", body)))
