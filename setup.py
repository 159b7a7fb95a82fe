"""Package the folder `app` as `lexrow`; everything else about the project is in pyproject.toml."""

from __future__ import annotations

from setuptools import find_packages, setup

setup(
    packages=["lexrow", *(f"lexrow.{name}" for name in find_packages("app"))],
    package_dir={"lexrow": "app"},
)
