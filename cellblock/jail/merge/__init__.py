# SPDX-License-Identifier: Apache-2.0
"""The three-way merge of an upgrade or rollback: of files, packages and records. Its result is a plan."""
