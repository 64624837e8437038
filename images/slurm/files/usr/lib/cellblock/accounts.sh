# Shell functions of the roles: the jail's users and groups on this node. Needs waiting.sh.
# docs/decisions/jail-accounts.md says what is copied and why.
# shellcheck shell=sh

# follow_accounts OPTIONS... - wait for a checked copy of the jail's accounts, and keep it up to date from then on.
# OPTIONS: of jail-accounts, where the jail is.
follow_accounts() {
    install -d -m 0755 /var/lib/extrausers
    # The first try says what is wrong, once.
    jail-accounts --once "$@" ||
        wait_for "the jail's accounts; the line above says what is wrong with them" accounts_copied "$@"
    node-supervise jail-accounts "$@" &
}

accounts_copied() { jail-accounts --once "$@" 2>/dev/null; }
