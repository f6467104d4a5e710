"""`moorage policy list`: prints every policy rule, its default and the requests that it guards."""

import argparse

from moorage.api.policy import Policy


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="moorage policy", description="The policy rules of the Compute API.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="print every rule with its present value")
    listing.add_argument("--policy-file", help="an oslo.policy file laid over the defaults")
    arguments = parser.parse_args(argv)
    for rule in Policy.of_file(arguments.policy_file).listed():
        guards = "".join(f"# {operation}\n" for operation in rule.operations)
        print(f'{guards}"{rule.name}": "{rule.check}"\n')
    return 0
