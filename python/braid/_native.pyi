"""The native part, which the modules beside it wrap."""

from typing import Callable, Dict, List, Optional, Tuple

from .traces import Trace

__version__: str

def sweep(
    setups: List[Tuple[List[str], List[str], Dict[str, str]]],
    threads: Optional[int],
    progress: Optional[Callable[..., object]],
) -> List[Tuple[Optional[str], str]]:
    """Simulates setups: for each, None and JSON, or the name of an exception's class and its text."""

def lab_experiments() -> str:
    """Declarations of all experiments, as JSON."""

def lab_run(
    names: List[str],
    declared: List[str],
    given: Tuple[int, Optional[int], bool, Optional[int], Optional[str], bool],
    progress: Optional[Callable[[int, int, float], object]],
) -> str:
    """Runs experiments by name, and those declared in JSON; gives their studies as JSON."""

def read_trace(path: str, limit: Optional[int], options: Dict[str, str]) -> Trace:
    """Reads a trace into columns."""
