class Platform:
    device_type = "cpu"

    def is_cpu(self):
        return True


current_platform = Platform()
