"""What config.yaml names: ``callbacks: ["gateway_plugin.callback.telemetry"]``.

LiteLLM may execute this file by path, outside ``sys.modules``, so it holds nothing but one absolute import.
"""

from gateway_plugin.hook import AgentwattLogger

telemetry = AgentwattLogger()
