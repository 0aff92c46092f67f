"""Wait until an address answers: wait_on.py ADDRESS SECONDS PROCESS. Exit code 1: it did not.

Any answer counts, an error too: the service listens. Where a process is named (not 0) that ends
before, nothing is waited for any longer.
"""

import os
import sys
import time
import urllib.error
import urllib.request

_PAUSE_S = 0.2


def is_gone(process: int) -> bool:
    """Tell whether a process has ended."""
    try:
        os.kill(process, 0)
    except OSError:
        return True
    return False


def main() -> int:
    """Wait, and say whether it answered."""
    address, seconds, process = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    if not address.startswith(("http://", "https://")):
        print(f"wait-on is no address: {address}", file=sys.stderr)
        return 1
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            urllib.request.urlopen(address, timeout=5).close()  # noqa: S310 - checked above
        except urllib.error.HTTPError:
            return 0
        except OSError:
            if process and is_gone(process):
                print("the service ended before it answered", file=sys.stderr)
                return 1
            time.sleep(_PAUSE_S)
        else:
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
