"""The orchestrator's command line: its servers, its policies, its settings; checked before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.core.settings import OrchestratorSettings
from sim.orchestrator.arms import Arms, NeedsGenError, UnknownPolicyError, build_arms
from sim.orchestrator.policies import BUILTIN
from sim.orchestrator.upstream import parse_url
from sim.service.config import ProcessOptions, options_of, server_parser

__all__ = ["OrchestratorOptions", "parse_arguments"]

_DESCRIPTION = "Context-first orchestrator: prefill at a ctx server, then gen's token stream through a policy."


@dataclass(frozen=True, slots=True)
class OrchestratorOptions:
    """All an orchestrator is told; ``arms`` holds the policies, loaded and checked."""

    process: ProcessOptions
    settings: OrchestratorSettings
    ctx: tuple[str, ...]
    gen: tuple[str, ...]
    arms: Arms


def parse_arguments(arguments: Sequence[str] | None = None) -> OrchestratorOptions:
    """Read the command line; exits with status 2 and a message that names what is wrong and what is allowed."""
    parser = server_parser("orchestrator", OrchestratorSettings, _DESCRIPTION)
    servers = parser.add_argument_group("servers and policies")
    for role in ("ctx", "gen"):
        servers.add_argument(
            f"--{role}",
            metavar="URL",
            action="append",
            default=[],
            help=f"a {role} server: http://HOST:PORT or unix:PATH; repeat for more",
        )
    servers.add_argument(
        "--policies",
        metavar="NAME,...",
        default=",".join(BUILTIN),
        help="policies that can be chosen while running, a package.module:callable among them [default: %(default)s]",
    )
    given = parser.parse_args(arguments)
    process, settings = options_of(parser, given, OrchestratorSettings)
    for role in ("ctx", "gen"):
        if not (urls := getattr(given, role)):
            parser.error(f"--{role}: give at least one {role} server, http://HOST:PORT or unix:PATH")
        if repeated := [url for url in urls if urls.count(url) > 1]:
            parser.error(f"--{role}: {repeated[0]!r} is given more than once")
        for url in urls:
            try:
                parse_url(url)
            except ValueError as error:
                parser.error(f"--{role}: {error}")
    names = [name for part in given.policies.split(",") if (name := part.strip())]
    try:
        arms = build_arms(names, settings.policy, usage_by_gen=settings.usage_by == "gen")
    except (UnknownPolicyError, NeedsGenError) as error:
        parser.error(str(error))
    return OrchestratorOptions(process, settings, tuple(given.ctx), tuple(given.gen), arms)
