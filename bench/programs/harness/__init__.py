"""How programs are run, limited, measured and compared; knows no program."""
