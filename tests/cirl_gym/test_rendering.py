"""Lines, pictures and windows of an episode so far."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import matplotlib
import numpy as np
import pytest
from env_runs import IDS, copied

from cirl_gym import FeatureMap
from cirl_gym.envs.picture import EpisodeSoFar, Frame, Renderer, line

ROOT = Path(__file__).resolve().parents[2]
TUMOUR = FeatureMap(("tumour", "side_effects"), np.zeros(2), np.array([50.0, 15.0]))
BLUE, DARK, PALE, WHITE = (0, 114, 178), (51, 51, 51), (232, 232, 232), (255, 255, 255)
needs_pygame = pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="not installed: pygame")


def tumour_episode(k=4, **changes):
    """Of k steps, treating at every second of them; tumour 30, 28, 26, .. and side effects 2, 3, 4, .."""
    t = np.arange(k + 1)
    obs = np.stack([30.0 - 2 * t, 2.0 + t], axis=1)
    actions = tuple(int(action) for action in (t[:-1] + 1) % 2)
    episode = EpisodeSoFar(TUMOUR, obs, actions, ("wait", "treat"), -0.25 * k, np.array([50.0, 15.0]), 20)
    return replace(episode, **changes)


def wide_episode(d, n_actions, k=12, names=None):
    rng = np.random.default_rng(d)
    names = names or tuple(f"feature number {i} with a rather long name" for i in range(d))
    scale = 10.0 ** rng.integers(-3, 8, d)
    obs = scale * rng.random((k + 1, d))
    actions = tuple(int(action) for action in np.arange(k) % n_actions)
    limits = np.where(np.arange(d) % 2, scale, np.nan)
    return EpisodeSoFar(
        FeatureMap(names, np.zeros(d), scale), obs, actions, tuple(f"dose {a}" for a in range(n_actions)), 0.0, limits
    )


def place(t, tumour):
    """Row and column of a point of the upper panel: 574 x 120 pixels from (52, 55) on, -.2 to 20.2 by -4 to 54."""
    return round(55 + 120 * (54 - tumour) / 58), round(52 + 574 * (t + 0.2) / 20.4)


def cell(t):
    """Row and column of the middle of an action's mark."""
    return 55 + 120 + 25 + 120 + 6 + 7, round(52 + 574 * (t + 0.5 + 0.2) / 20.4)


def drawn(episode):
    return Renderer("rgb_array", 4).picture(episode)


def test_the_line_tells_step_action_features_limits_and_reward():
    told = "step  3/20  treat  tumour 24.00 (limit 50)  side_effects 5.00 (limit 15)  reward so far -0.750\n"
    assert line(tumour_episode(3)) == told
    assert line(tumour_episode(4)).startswith("step  4/20  wait   tumour 22.00")
    # At the start and without some limits and horizon; no minus before a zero either.
    bare = tumour_episode(0, limits=np.nan, horizon=None, earned=-0.0001)
    assert line(bare) == "step  0  start  tumour 30.00  side_effects 2.00  reward so far 0.000\n"
    text = line(tumour_episode(0, limits=np.array([np.nan, 15.0])))
    assert "tumour 30.00  side_effects 2.00 (limit 15)" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": (0, 1)}, r"obs must be finite numbers \[3, 2\]"),
        ({"actions": (0, 1, 0, 2)}, "actions must lie in 0..1"),
        ({"obs": np.full((5, 2), np.nan)}, "obs must be finite"),
        ({"limits": np.array([50.0])}, "limits must be 2 numbers"),
        ({"earned": np.inf}, "reward so far must be finite"),
    ],
)
def test_an_episode_that_does_not_fit_together_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        tumour_episode(4, **changes)


class TestPicture:
    def test_shows_the_episode_where_it_is(self):
        picture = drawn(tumour_episode(4))
        assert picture.dtype == np.uint8
        assert picture.shape == (388, 640, 3)
        assert tuple(picture[place(4, 22.0)]) == BLUE
        # On the straight way from (3, 24) to (4, 22); and nothing of what is still to come.
        assert tuple(picture[place(3.5, 23.0)]) == BLUE
        assert tuple(picture[place(7.5, 22.0)]) == WHITE
        # 22 at an earlier step is not on the curve.
        assert tuple(picture[place(2.5, 17.0)]) == WHITE
        # The doses.
        assert [tuple(picture[cell(t)]) for t in range(6)] == [DARK, PALE, DARK, PALE, WHITE, WHITE]

    def test_shows_the_limit(self):
        with_limit, without = (drawn(tumour_episode(4, limits=limits)) for limits in (np.array([50, 15]), np.nan))
        row = place(0, 50.0)[0]
        # Much more red than blue: the line, softened at its edges. It is dashed.
        reddish = [
            (seen[row, 53:625, 0].astype(int) - seen[row, 53:625, 2] > 80).sum() for seen in (with_limit, without)
        ]
        assert 200 < reddish[0] < 500
        assert reddish[1] == 0

    def test_the_reward_so_far_is_shown(self):
        # In the upper right corner, and nowhere else.
        a, b = (drawn(tumour_episode(4, earned=earned)) for earned in (-1.0, -2.0))
        rows, columns = np.nonzero((a != b).any(axis=2))
        assert len(rows)
        assert rows.max() < 30
        assert columns.min() > 450

    def test_the_time_axis_is_the_horizon_and_grows_if_need_be(self):
        assert [Frame.of(tumour_episode(k)).span for k in (0, 20)] == [20, 20]
        long = EpisodeSoFar(TUMOUR, np.ones((22, 2)), (0,) * 21, ("wait", "treat"), 0.0, np.nan, 20)
        assert Frame.of(long).span == 30
        assert [Frame.of(tumour_episode(k, horizon=None)).span for k in (0, 10, 11)] == [10, 10, 20]

    def test_what_leaves_the_ranges_is_still_shown(self):
        frame = Frame.of(tumour_episode(4, obs=np.array([[30.0, 2.0]] * 4 + [[80.0, -3.0]])))
        # From 0..50 to 0..100 and from 0..15 to -7.5..15, by halves of a range; and 8 % around.
        assert frame.low == pytest.approx([-8.0, -7.5 - 0.08 * 22.5])
        assert frame.high == pytest.approx([108.0, 15.0 + 0.08 * 22.5])

    def test_same_input_same_bytes_whatever_was_drawn_before(self):
        renderer, steps = Renderer("rgb_array", 4), [tumour_episode(k) for k in range(9)]
        first = [renderer.picture(episode) for episode in steps]
        renderer.picture(wide_episode(5, 3))
        for episode, picture in zip(reversed(steps), reversed(first), strict=True):
            np.testing.assert_array_equal(renderer.picture(episode), picture)
        np.testing.assert_array_equal(drawn(steps[-1]), first[-1])
        assert len({picture.tobytes() for picture in first}) == 9
        # An episode is drawn on one figure, and a picture is the caller's own.
        given = renderer.picture(tumour_episode(3))
        drawing, before = renderer._drawing, given.copy()
        renderer.picture(tumour_episode(4))
        assert renderer._drawing is drawing
        np.testing.assert_array_equal(given, before)
        given[:] = 0
        np.testing.assert_array_equal(renderer.picture(tumour_episode(3)), before)

    def test_settings_of_the_user_are_neither_heeded_nor_changed(self):
        plain = drawn(tumour_episode(4))
        own = {"font.size": 30, "axes.facecolor": "red", "lines.linestyle": ":", "text.color": "red"}
        with matplotlib.rc_context(own):
            settings = dict(matplotlib.rcParams)
            np.testing.assert_array_equal(drawn(tumour_episode(4)), plain)
            assert dict(matplotlib.rcParams) == settings

    @pytest.mark.parametrize(("d", "n_actions"), [(1, 2), (3, 7), (4, 8), (6, 2), (15, 25)])
    def test_any_number_of_features_and_actions(self, d, n_actions):
        episode, renderer = wide_episode(d, n_actions), Renderer("rgb_array", 4)
        picture = renderer.picture(episode)
        assert picture.shape[1:] == (640, 3)
        assert 300 < picture.shape[0] < 550
        # A change of any one feature is seen.
        for k in range(d):
            obs = episode.obs.copy()
            obs[-1, k] = 0.5 * (episode.feature_map.low[k] + obs[-1, k])
            assert (renderer.picture(replace(episode, obs=obs)) != picture).any()

    def test_very_large_and_very_small_numbers_leave_the_names_alone(self):
        """The line above a panel shows the same, whatever the axis shows."""
        lines = []
        for scale in (50.0, 5e9, 5e-7):
            cells = FeatureMap(("cells",), np.zeros(1), np.array([scale]))
            lines.append(drawn(EpisodeSoFar(cells, np.zeros((1, 1)), (), ("a", "b"), 0.0))[32:54, :500])
        assert (lines[0] != 255).any()
        np.testing.assert_array_equal(lines[0], lines[1])
        np.testing.assert_array_equal(lines[0], lines[2])
        # Names in any script and with any sign.
        names = ("$x_1$ & {y}", "血压", "\N{GREEK SMALL LETTER MU}g/ml % <b>")
        assert drawn(wide_episode(3, 2, names=names)).shape[1] == 640


def test_matplotlib_comes_with_the_first_picture_and_pyplot_never():
    code = """
import sys
import numpy as np
from cirl_gym import FeatureMap
from cirl_gym.envs.picture import EpisodeSoFar, Renderer
episode = EpisodeSoFar(FeatureMap(("x",), np.zeros(1), np.ones(1)), np.zeros((1, 1)), (), ("a", "b"), 0.0)
Renderer("ansi", 4).render(episode)
assert "matplotlib" not in sys.modules and "pygame" not in sys.modules
Renderer("rgb_array", 4).render(episode)
assert "matplotlib.figure" in sys.modules
assert "matplotlib.pyplot" not in sys.modules and "pygame" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@copied
def test_modes_and_that_copies_draw_the_same(copied):
    some, renderer = tumour_episode(3), Renderer("rgb_array", 4)
    assert Renderer("ansi", 4).render(some) == line(some)
    np.testing.assert_array_equal(renderer.render(some), drawn(some))
    np.testing.assert_array_equal(copied(renderer).render(some), drawn(some))
    assert len(pickle.dumps(renderer)) < 1000
    with pytest.raises(ValueError, match="render_mode must be one of 'ansi', 'rgb_array', 'human' or None"):
        Renderer("film", 4)


class TestWindow:
    @pytest.fixture
    def pygame(self, monkeypatch):
        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
        module = pytest.importorskip("pygame")
        yield module
        module.display.quit()

    def shown(self, pygame):
        return pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)

    def test_shows_the_pictures_of_rgb_array_and_closes(self, pygame):
        renderer = Renderer("human", 1000)
        for k in range(3):
            assert renderer.render(tumour_episode(k)) is None
            np.testing.assert_array_equal(self.shown(pygame), drawn(tumour_episode(k)))
        renderer.close()
        assert not pygame.display.get_init()
        renderer.close()
        renderer.render(tumour_episode(1))
        copy.deepcopy(renderer).close()  # a copy has no window yet
        assert renderer._screen is not None
        assert pygame.display.get_init()
        renderer.close()

    def test_waits_until_the_next_picture_is_due(self, pygame):
        window = Renderer("human", 20)
        window.show(np.zeros((8, 8, 3), dtype=np.uint8))
        before = pygame.time.get_ticks()
        for _ in range(3):
            window.show(np.zeros((8, 8, 3), dtype=np.uint8))
        assert pygame.time.get_ticks() - before >= 90
        window.close()

    @pytest.mark.parametrize("env_id", IDS)
    def test_environments_show_themselves(self, pygame, env_id, monkeypatch):
        env = gym.make(env_id, render_mode="human")
        monkeypatch.setattr(env.unwrapped._renderer, "fps", 1000)
        still = gym.make(env_id, render_mode="rgb_array")
        for do in (lambda one: one.reset(seed=3), lambda one: one.step(1)):
            do(env)
            do(still)
            np.testing.assert_array_equal(self.shown(pygame), still.render())
        env.close()
        assert not pygame.display.get_init()

    def test_without_pygame_the_error_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pygame", None)
        with pytest.raises(ImportError, match=r'pip install "cirl-gym\[human\]"'):
            Renderer("human", 4).render(tumour_episode(1))


@pytest.mark.parametrize("policy", ["careful", "never"])
def test_the_example_records_an_episode(tmp_path, policy):
    from PIL import Image

    out = tmp_path / "new folder" / "episode.gif"
    command = [sys.executable, str(ROOT / "examples" / "record_gif.py"), "--out", str(out), "--policy", policy]
    done = subprocess.run([*command, "--seed", "0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert out.stat().st_size < 300_000
    env = gym.make("CIRLTumour-v0", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    steps, over = 0, False
    while not over:
        obs, _, terminated, truncated, _ = env.step(int(policy == "careful" and obs[1] < 4.5))
        steps, over = steps + 1, terminated or truncated
    films = [out, ROOT / "docs" / "tumour.gif"] if policy == "careful" else [out]
    for path in films:  # the README's film shows what the code draws
        with Image.open(path) as film:
            assert film.n_frames == steps + 1
            film.seek(steps)
            last = np.asarray(film.convert("RGB")).astype(int)
        assert np.abs(last - env.render()).mean() < 1
