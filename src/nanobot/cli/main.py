"""The `nanobot` command: runs a subcommand and turns errors into sentences and exit statuses."""

from __future__ import annotations

import errno
import os
import sys

from nanobot import __version__

EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def main() -> None:
    """Entry point. Exit status: 0 done, 1 failed, 2 usage or configuration, 130 interrupted."""
    if sys.argv[1:] == ["--version"]:  # before anything is imported: scripts ask this often
        print(f"nanobot, version {__version__}")
        return
    if sys.argv[1:2] == ["_exec"]:
        from nanobot.cli.supervise import supervise

        sys.exit(supervise(sys.argv[2:]))
    sys.exit(_run())


def _run() -> int:
    import click

    from nanobot.cli.root import root
    from nanobot.errors import ConfigError, NanobotError, UsageError

    try:
        status = root.main(standalone_mode=False)
    except click.exceptions.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as e:
        e.show()
        return e.exit_code
    except (ConfigError, UsageError) as e:
        print(f"nanobot: {e}", file=sys.stderr)
        return EXIT_USAGE
    except NanobotError as e:
        print(f"nanobot: {e}", file=sys.stderr)
        return EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output left; there is nobody to tell
        return EXIT_FAILURE
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        print(f"nanobot: Nothing more can be written: {e.strerror}.", file=sys.stderr)
        os._exit(EXIT_FAILURE)  # an ordinary exit would try to write the rest once more
    return status if isinstance(status, int) else 0
