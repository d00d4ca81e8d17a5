"""Make a test set of 1,000 Connect Four positions (6 rows, 7 columns) with the exact value of every move.

Writes ConnectFour-v0.csv next to this script, with the header `moves,phase,scores`:
  moves   the columns played from the empty board, 0..6, joined by spaces (empty for the empty board itself);
  phase   opening (0..13 stones on the board), middle (14..27) or end (28..41);
  scores  the scores of columns 0..6, joined by spaces, from the view of the player to move: more than 0 means that
          the move wins, 0 that it draws, less than 0 that it loses (all under perfect play afterwards, and the larger
          the number the sooner the win or the later the loss); `-` for a full column.

Each position comes from a game of uniformly random legal moves that nobody has won yet. It is kept if the move
matters, that is, if two of its legal moves lead to different results (win, draw or loss), and if neither it nor
its left-right mirror image is in the set already. Nothing else is filtered. The number of stones is drawn uniformly
within the phase before the game is played; a number for which no new position turns up in MAX_GAMES games (or in
MAX_SHORT_GAMES, for 2 stones or fewer) is drawn again. No position has 41 stones: only one move is left there.

The scores are those of the perfect solver bitbully. The same seed and versions always give the same file.
Made with Python 3.11, bitbully==0.0.79 and bitbully-databases==0.0.2. To run:
  pip install bitbully==0.0.79 bitbully-databases==0.0.2
  python label_connectfour.py
"""

import csv
import random
from pathlib import Path

from bitbully import BitBully, Board

SEED = 20240607
MAX_GAMES = 100_000  # random games to try for one drawn number of stones before drawing another
MAX_SHORT_GAMES = 100  # the same for 2 stones or fewer, where the few positions there are soon run out
PHASES = {  # name: (fewest stones, most stones, positions wanted)
    "opening": (0, 13, 334),
    "middle": (14, 27, 333),
    "end": (28, 41, 333),
}
COLUMNS, ROWS = 7, 6
OUTPUT = Path(__file__).with_name("ConnectFour-v0.csv")


def play_random_game(rng: random.Random, stones: int) -> tuple[str, Board] | None:
    """Play that many uniformly random legal moves; None if somebody wins on the way (or with the last of them)."""
    board, moves, heights = Board(), "", [0] * COLUMNS
    for _ in range(stones):
        column = rng.choice([c for c in range(COLUMNS) if heights[c] < ROWS])
        board.play(column)
        if board.has_win():
            return None
        heights[column] += 1
        moves += str(column)
    return moves, board


def result(score: int) -> int:
    """Return the result behind a score: 1 win, 0 draw, -1 loss for the player to move."""
    return (score > 0) - (score < 0)


def find_position(
    rng: random.Random, solver: BitBully, stones: int, seen: set[int]
) -> tuple[str, dict[int, int]] | None:
    """Return a new position with that many stones in which the move matters, with its scores; None if none turned up."""
    for _ in range(MAX_GAMES if stones > 2 else MAX_SHORT_GAMES):
        game = play_random_game(rng, stones)
        if game is None:
            continue
        moves, board = game
        key = min(board.uid(), board.mirror().uid())
        if key in seen:
            continue
        scores = solver.score_all_moves(board)
        if len({result(score) for score in scores.values()}) > 1:
            seen.add(key)
            return moves, scores
    return None


def main() -> None:
    """Make the positions of every phase and write them to OUTPUT."""
    rng, solver, seen = random.Random(SEED), BitBully(), set()
    rows: list[tuple[str, str, str]] = []
    for phase, (fewest, most, wanted) in PHASES.items():
        found = 0
        while found < wanted:
            stones = rng.randint(fewest, most)
            if stones == COLUMNS * ROWS - 1:  # one move left: no choice
                continue
            position = find_position(rng, solver, stones, seen)
            if position is not None:
                moves, scores = position
                rows.append((" ".join(moves), phase, " ".join(str(scores.get(c, "-")) for c in range(COLUMNS))))
                found += 1
    rows.sort(key=lambda row: (len(row[0]), row[0]))
    with OUTPUT.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("moves", "phase", "scores"), *rows])


if __name__ == "__main__":
    main()
