# SPDX-License-Identifier: Apache-2.0
"""What a CI service is to run: the matrix of builds as data, and as the service's own YAML."""
