"""Contract suites for ports: what every store and every bus has to do, whoever wrote it.

Subclass a suite in a pytest module and give it what it asks for; pytest then collects its tests. pytest and
pytest-asyncio (`asyncio_mode = "auto"`) are yours to install.
"""
