"""Whatever is killed, and whenever: no file is half written, and the same command ends as if nothing had happened."""

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case, Scene, Whole, halves, left, leftovers
from watching import SEED, number

AT_A_WRITE = 0.75  # of the moments; the others are any


def moment(whole: Whole, processes: int, chance: random.Random) -> dict[str, Any]:
    """A random moment of a command: in one of its writes, or at any time."""
    rank = chance.randrange(processes)
    if rank or chance.random() >= AT_A_WRITE:  # the first of several processes writes
        return {"after": chance.uniform(0, whole.seconds), "rank": rank}
    after = chance.choice([0.0, chance.uniform(0, 0.003), chance.uniform(0, 0.03)])
    return {"write": chance.randint(1, whole.writes), "after": after, "rank": rank}


def killed(case: Case, folder: Path, whole: Whole, chance: random.Random) -> bool:
    """Kill a command at a random moment; false where it was done before."""
    where = moment(whole, case.processes, chance)
    statuses = case.run(folder, **where)
    assert -9 in statuses or statuses == [0] * case.processes, (case.name, where, case.said(folder))
    assert halves(folder) == [], (case.name, where)
    return statuses[where["rank"]] == -9


def done_before(case: Case, folder: Path) -> bool:
    """Whether a command says that its folder is in place: it was killed after its last step."""
    return "is not empty" in case.said(folder)


def test_whatever_is_killed_ends_as_if_nothing_had_happened(tmp_path: Path, record: Callable[..., None]) -> None:
    scene, chance, wanted = Scene(tmp_path / "scene"), random.Random(f"kills {SEED}"), number("KILLS", 200)
    kills: Counter[str] = Counter()
    lives, resumptions = 0, 0
    while kills.total() < wanted:
        for case in chance.sample(list(scene.cases.values()), len(scene.cases)):
            whole, folder = scene.whole(case), tmp_path / f"life-{lives}"
            lives += 1
            # A resumption may be killed, too.
            for _ in range(chance.choice([1, 1, 2])):
                dead = killed(case, folder, whole, chance)
                kills[case.name] += dead
                resumptions += dead
                if not dead:
                    break
            statuses = case.run(folder)
            assert statuses == [0] * case.processes or done_before(case, folder), (case.name, case.said(folder))
            assert left(folder) == whole.left, (case.name, case.said(folder))
            assert leftovers(folder) == [], case.name
            shutil.rmtree(folder)
            if kills.total() >= wanted:
                break
    found = f"no half-written file in {lives} folders; {resumptions} went on to the same bits, no leftovers"
    often = f"{kills.total()} kills of {len(kills)} commands, {round(100 * AT_A_WRITE)} % of them in a write"
    record("SIGKILL, and the same command again", often, found, kills=dict(kills), folders=lives)
