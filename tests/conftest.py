import os

import torch
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

torch.set_num_threads(1)  # The tensors here are small: a second thread only adds waiting.
