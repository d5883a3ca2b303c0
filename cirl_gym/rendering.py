"""Gymnasium's render modes: an episode so far as a line of text, as a picture, or in a window.

matplotlib (pictures) and pygame (windows) are imported only when something is drawn.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cirl_gym.course import Course, line
from cirl_gym.course_picture import Picture, Sheet


class Window:
    """A window that shows one picture after the other at a steady pace; it opens with the first.

    Args:
        fps: the most pictures per second; showing one waits until it is due.
    """

    def __init__(self, fps: float) -> None:
        self._fps = fps
        self._pygame: ModuleType | None = None
        self._screen: Any = None
        self._clock: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the window is there."""
        return self._screen is not None

    def show(self, picture: Picture) -> None:
        """Show a picture ``[H, W, 3]`` uint8.

        Raises:
            ImportError: pygame is not installed; the message says what to install.
        """
        if self._pygame is None:
            self._pygame = _import_pygame()
        pygame, size = self._pygame, (picture.shape[1], picture.shape[0])
        if self._screen is None or self._screen.get_size() != size:
            pygame.display.init()
            self._screen = pygame.display.set_mode(size)
            pygame.display.set_caption("CIRL")
            self._clock = pygame.time.Clock()
        # pygame counts columns first.
        pygame.surfarray.blit_array(self._screen, picture.swapaxes(0, 1))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self._fps)

    def close(self) -> None:
        """Take the window away; the next picture opens another."""
        if self._screen is not None and self._pygame is not None:
            self._pygame.display.quit()
        self._screen = self._clock = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy has no window yet."""
        return {"_fps": self._fps, "_pygame": None, "_screen": None, "_clock": None}


class Renderer:
    """What an environment draws with: one of Gymnasium's render modes.

    A copy (``pickle``, ``deepcopy``) draws the same and begins without a figure and a window.

    Args:
        mode: ``"ansi"``, ``"rgb_array"`` or ``"human"``.
        fps: pictures per second of a window.

    Raises:
        ValueError: the mode is unknown.
    """

    MODES = ("ansi", "rgb_array", "human")

    def __init__(self, mode: str, fps: float) -> None:
        if mode not in self.MODES:
            raise ValueError(f"render_mode must be one of {', '.join(map(repr, self.MODES))} or None, got {mode!r}")
        self.mode = mode
        self._sheet = Sheet()
        self._window = Window(fps)

    def render(self, course: Course) -> str | Picture | None:
        """The course as the mode wants it.

        Returns:
            ``"ansi"``: :func:`~cirl_gym.course.line`; ``"rgb_array"``: a picture ``[H, W, 3]`` uint8, whose size
            depends on the number of features alone; ``"human"``: None, once the window shows the picture.

        Raises:
            ImportError: the mode is ``"human"`` and pygame is not installed.
        """
        if self.mode == "ansi":
            return line(course)
        picture = self._sheet.picture(course)
        if self.mode == "rgb_array":
            return picture
        self._window.show(picture)
        return None

    def close(self) -> None:
        """Close the window, if there is one."""
        self._window.close()


def _import_pygame() -> ModuleType:
    try:
        import pygame
    except ImportError as error:
        raise ImportError('render_mode="human" needs pygame: pip install "cirl-gym[human]"') from error
    module: ModuleType = pygame
    return module
