import sys

from devtools.commands import main
from devtools.ministack import Ministack

sys.exit(main(Ministack))
