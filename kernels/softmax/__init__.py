from kernels.softmax.softmax import log_softmax as log_softmax
from kernels.softmax.softmax import softmax as softmax
